"""The portal as Prometheus reads it: its pods, and its own proxies, of which panels of models see nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.monitoring import prometheus
from floor import namespaces
from services.portal import server
from stacks.facts import metrics
from tests.unit.spine.test_dns_site import PORTAL_SITE
from tests.unit.spine.test_grafana_site import declared

pytestmark = pytest.mark.row("002.09")

JOB = "portal-proxies"
ALERTS = ("PortalDown", "PortalPartAway")
POLICIES = ("portal-clients", "portal-requests")
POLICY, MONITOR, RULES = "portal-proxy-network-policy", f"monitoring-monitor-{JOB}", "monitoring-rules"


def alerts(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rules = [rule for group in made[RULES]["spec"]["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@pytest.mark.slow
def test_the_end_of_the_portals_certificate_is_measured(tmp_path: Path) -> None:
    made = declared(tmp_path, PORTAL_SITE)[0]
    spec = made[MONITOR]["spec"]
    # The pods that the portal's policy is about let Prometheus in at the port that it reads, and no other pod.
    assert spec["namespaceSelector"]["matchNames"] == [made[POLICY]["metadata"]["namespace"]]
    assert spec["selector"] == made[POLICY]["spec"]["podSelector"]
    (endpoint,) = spec["podMetricsEndpoints"]
    people, scrapers = made[POLICY]["spec"]["ingress"]
    assert "from" not in people and [port["port"] for port in people["ports"]] == [10443]
    (prometheus_alone,) = scrapers["from"]
    assert prometheus_alone["podSelector"]["matchLabels"] == prometheus.LABELS
    assert prometheus_alone["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": namespaces.MONITORING
    }
    assert [port["port"] for port in scrapers["ports"]] == [endpoint["portNumber"]]
    (kept,) = endpoint["metricRelabelings"]
    assert (kept["action"], kept["sourceLabels"]) == ("keep", ["__name__"])
    assert kept["regex"] in metrics.load()["envoy"].gauges
    rule = alerts(made)["CertificateExpires"]
    assert f'{kept["regex"]}{{job=~"inference-proxies|{JOB}"}}' in rule["expr"]
    for key in ("gateway.certificate_secret", "portal.certificate_secret"):
        assert f"`{key}`" in rule["annotations"]["description"]
    # Beside it, those that are about every job.
    assert {name for name, rule in alerts(made).items() if JOB in str(rule)} == {
        *("CertificateExpires", "TargetDown", "TargetsMissing")
    }


@pytest.mark.slow
def test_a_site_without_a_portal_has_nothing_of_it(tmp_path: Path) -> None:
    made = declared(tmp_path, {})[0]
    assert [name for name, inputs in made.items() if JOB in name + str(inputs)] == []
    days = 'min by (pod) (envoy_server_days_until_first_cert_expiring{job="inference-proxies"}) < 14'
    assert alerts(made)["CertificateExpires"]["expr"] == days
    assert alerts(made).keys().isdisjoint(ALERTS)


@pytest.mark.slow
@pytest.mark.row("000.01")
@pytest.mark.parametrize("named", [{}, {"groups_claim": "realm_access.roles"}])
def test_the_portal_reads_groups_where_the_site_states(named: dict[str, str], tmp_path: Path) -> None:
    made = declared(tmp_path, {**PORTAL_SITE, "portal": PORTAL_SITE["portal"] | named})[0]
    (container,) = made["portal-pods"]["spec"]["template"]["spec"]["containers"]
    assert f"--groups-claim={named.get('groups_claim', 'groups')}" in container["args"]


@pytest.mark.slow
@pytest.mark.row("000.34", "004.03")
def test_what_one_client_can_take_of_the_portal_is_bounded(tmp_path: Path) -> None:
    """By policies of its own Gateway and route, which are there before anyone connects."""
    made, requests = declared(tmp_path, PORTAL_SITE)
    clients, asked = (made[name]["spec"] for name in POLICIES)
    for policy, target in ((clients, made["portal-listener"]), (asked, made["portal-route"])):
        (attached,) = policy["targetRefs"]
        assert (attached["kind"], attached["name"]) == (target["kind"], target["metadata"]["name"])
    waited = {urn.rpartition("::")[2] for urn in requests["portal-listener"].dependencies}
    assert waited >= set(POLICIES)
    assert clients["connection"]["connectionLimit"]["value"] > 0
    assert clients["timeout"]["http"].keys() == {"requestReceivedTimeout", "idleTimeout"}
    # An address of either family counts for itself.
    counted = [rule["clientSelectors"][0]["sourceCIDR"] for rule in asked["rateLimit"]["local"]["rules"]]
    assert counted == [{"type": "Distinct", "value": network} for network in ("0.0.0.0/0", "::/0")]
    # What Envoy holds of a body is what the portal takes.
    assert asked["requestBuffer"]["limit"] == f"{server._LARGEST_BODY // 1024}Ki"


@pytest.mark.slow
def test_alerts_about_the_portal_ask_for_its_own_pods(tmp_path: Path) -> None:
    """By the job that they are read as, and the Deployment that the program makes."""
    made = declared(tmp_path, PORTAL_SITE)[0]
    pods, monitor = made["portal-pods"], made["monitoring-monitor-portal"]["spec"]
    down, part = (alerts(made)[name]["expr"] for name in ALERTS)
    where = f'namespace="{pods["metadata"]["namespace"]}", deployment="{pods["metadata"]["name"]}"'
    assert where in down
    assert monitor["selector"]["matchLabels"].items() <= pods["spec"]["template"]["metadata"]["labels"].items()
    (job,) = (rule["replacement"] for rule in monitor["podMetricsEndpoints"][0]["relabelings"])
    assert f'up{{job="{job}"}}' in down
    assert f'portal_upstream_failures_total{{job="{job}"}}' in part


@pytest.mark.slow
def test_where_nothing_measures_people_alone_reach_the_portal(tmp_path: Path) -> None:
    made = declared(tmp_path, {**PORTAL_SITE, "monitoring": {"system": "none"}})[0]
    assert MONITOR not in made
    (people,) = made[POLICY]["spec"]["ingress"]
    assert "from" not in people
