"""The check that what rules ask for is measured, on sites with GPUs and storage, which no lab has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from components.specs.dns import DnsServerSpec, DnsSpec
from components.specs.logs import LogsSpec
from floor.spec import Spec
from stacks.facts import metrics
from stacks.plan.site_plan import SitePlan, plan_file
from tests.live import test_live_monitoring as monitoring
from tests.live.running import Object, RunningSite

pytestmark = pytest.mark.row("opening 5", "002.09")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
POD_NETWORK = PROD.site.monitoring.model_copy(update={"pod_network": "measured"})
SERVER = DnsServerSpec(nameserver="10.5.0.2", zones=("site.example",), tsig_key="platform", tsig_secret="dns-tsig")
BY_CHOICE: dict[str, dict[str, Spec]] = {
    **{part: {"monitoring": POD_NETWORK} for part in ("cilium_agent", "hubble")},
    **{part: {"logs": LogsSpec(system="victoria_logs")} for part in ("log_collector", "log_store")},
    "external_dns": {"dns": DnsSpec(system="external_dns", rfc2136=SERVER)},
}
check = monitoring.test_what_rules_and_dashboards_ask_for_is_measured


@dataclass(frozen=True, kw_only=True)
class Measured(RunningSite):
    """A site whose Prometheus has these names of one job."""

    job: str
    names: set[str]
    asked: list[str] = field(default_factory=list)

    def prometheus(self, path: str, **parameters: str) -> Object:
        self.asked.append(f"{path}: {parameters['query']}")
        mine = f'job="{self.job}"' in parameters["query"]
        return {"result": [{"metric": {"__name__": name}} for name in self.names if mine]}


def unseen(_: str) -> None:
    """No evidence."""


def measured(part: str, without: str = "", plan: SitePlan = PROD) -> Measured:
    listed = metrics.load()[part]
    names = set(listed.series) - {without} - set(listed.rare)
    return Measured(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={}, job=listed.job, names=names)


@pytest.mark.parametrize(
    ("part", "name", "job"),
    [
        ("dcgm_exporter", "DCGM_FI_DEV_GPU_TEMP", "gpus"),
        ("longhorn", "longhorn_volume_robustness", "storage"),
        ("cilium_agent", "cilium_bpf_map_pressure", "cilium-agent"),
        ("hubble", "hubble_flows_processed_total", "hubble"),
        ("log_collector", "vlagent_remotewrite_pending_data_bytes", "log-collectors"),
        ("log_store", "vl_free_disk_space_bytes", "log-store"),
        ("external_dns", "external_dns_controller_last_sync_timestamp_seconds", "dns-records"),
        ("alertmanager", "alertmanager_alerts", "alertmanager"),
        ("prometheus_operator", "prometheus_operator_ready", "prometheus-operator"),
    ],
)
def test_a_name_that_is_not_measured_is_found(part: str, name: str, job: str) -> None:
    evidence: list[str] = []
    plan = PROD
    if part in BY_CHOICE:
        plan = replace(PROD, site=PROD.site.model_copy(update=BY_CHOICE[part]))
        with pytest.raises(pytest.skip.Exception, match=f"what is measured as {job}"):
            check(measured(part), unseen, part)
    check(measured(part, plan=plan), evidence.append, part)
    (shown,) = evidence
    assert shown.startswith(f"{job}: ")
    with pytest.raises(AssertionError, match=f"{job} measures no {name} .stacks/facts/metrics/{part}.yaml"):
        check(measured(part, without=name, plan=plan), evidence.append, part)


def test_what_comes_with_an_event_alone_may_be_absent() -> None:
    listed = metrics.load()["dcgm_exporter"]
    assert "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL" in listed.rare
    check(measured("dcgm_exporter", without="DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), unseen, "dcgm_exporter")


def test_a_part_that_the_site_does_not_install_is_skipped() -> None:
    cluster = PROD.site.cluster.model_copy(update={"gpu_stack": "external"})
    plan = replace(PROD, site=PROD.site.model_copy(update={"cluster": cluster}))
    with pytest.raises(pytest.skip.Exception, match="does not let the program install what is measured as gpus"):
        check(measured("dcgm_exporter", plan=plan), unseen, "dcgm_exporter")


@dataclass(frozen=True, kw_only=True)
class Sending(RunningSite):
    """A site of two nodes, whose collectors count these blocks."""

    sent: dict[str, str]

    def prometheus(self, path: str, **parameters: str) -> Object:
        asked = 'sum by (node) (vlagent_remotewrite_blocks_sent_total{job="log-collectors"})'
        assert (path, parameters) == ("query", {"query": asked})
        return {"result": [{"metric": {"node": node}, "value": [0, count]} for node, count in self.sent.items()]}

    def items(self, path: str, **parameters: str) -> list[Object]:
        assert (path, parameters) == ("/api/v1/nodes", {})
        return [{"metadata": {"name": name}} for name in ("cp-1", "hgx-1")]


@pytest.mark.parametrize("sent", [{"cp-1": "7"}, {"cp-1": "7", "hgx-1": "0"}], ids=["no collector", "nothing sent"])
def test_a_node_whose_lines_do_not_arrive_is_found(sent: dict[str, str]) -> None:
    plan = replace(PROD, site=PROD.site.model_copy(update=BY_CHOICE["log_store"]))
    site = Sending(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={}, sent={"cp-1": "7", "hgx-1": "3"})
    monitoring.test_each_node_sends_the_lines_of_its_pods(site, unseen)
    with pytest.raises(AssertionError, match="no line came from hgx-1 "):
        monitoring.test_each_node_sends_the_lines_of_its_pods(replace(site, sent=sent), unseen)
