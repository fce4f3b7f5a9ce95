"""A Grafana of the platform's own, where a site asks for it: what it shows, whom it asks, and who gets in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from components.addons.grafana import SOURCE_UID
from components.monitoring import prometheus
from floor import namespaces
from manifests import grafana
from stacks.plan.by_hand import by_hand
from stacks.plan.site_plan import SitePlan, plan_values
from tests.certificates import authority
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("003.19", "001.38")

G, ADMINISTRATORS = "monitoring.grafana", "cluster.machines.administrators"
PASSWORD: dict[str, Any] = {G: {"run_by": "platform", "admin_secret": "grafana-admin"}}
PEOPLE: dict[str, Any] = {
    "issuer": "https://login.site.example",
    "groups_claim": "roles",
    "viewers": ["all staff", "cn=ml,ou=groups"],
    "operators": ["on-call"],
    "admins": ["platform"],
}
ISSUER = {
    "client_secret": "grafana-login",
    "authorization_url": "https://login.site.example/authorize",
    "token_url": "https://login.site.example:8443/token",
}
ROOT = authority().pem
LOGIN: dict[str, Any] = {
    G: {
        "run_by": "platform",
        "login": ISSUER,
        "proxy": {"namespace": "ingress", "url": "https://grafana.site.example/"},
    },
    ADMINISTRATORS: PEOPLE,
    "cluster.machines.trusted_roots": {"site": ROOT},
}


def planned(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def declared(folder: Path, change: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of each resource, and what the engine gets of it, by name."""
    recorder = Recorder()
    _, requests = requested(planned(change).site, folder, recorder)
    return {name: made.inputs for name, made in recorder.resources.items()}, requests


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    return declared(tmp_path_factory.mktemp("password"), PASSWORD)


@pytest.fixture(scope="module")
def made(both: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return both[0]


@pytest.fixture(scope="module")
def by_issuer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return declared(tmp_path_factory.mktemp("issuer"), LOGIN)[0]


def values(made: dict[str, Any]) -> dict[str, Any]:
    of_chart: dict[str, Any] = made["grafana-grafana"]["values"]
    return of_chart


OFF = """ANALYTICS_REPORTING_ENABLED ANALYTICS_CHECK_FOR_UPDATES ANALYTICS_CHECK_FOR_PLUGIN_UPDATES
NEWS_NEWS_FEED_ENABLED
SNAPSHOTS_ENABLED SNAPSHOTS_EXTERNAL_ENABLED PLUGINS_PLUGIN_ADMIN_ENABLED PLUGINS_PREINSTALL_AUTO_UPDATE
AUTH_ANONYMOUS_ENABLED PUBLIC_DASHBOARDS_ENABLED USERS_ALLOW_SIGN_UP"""


def test_it_asks_no_one_outside_and_shows_nothing_without_a_login(made: dict[str, Any]) -> None:
    """Of what has a switch the other way round: pictures of people, and plugins that it would fetch as it starts."""
    env = values(made)["env"]
    assert {name: env.get(f"GF_{name}") for name in OFF.split()} == dict.fromkeys(OFF.split(), "false")
    assert env["GF_SECURITY_DISABLE_GRAVATAR"] == env["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
    assert not values(made).get("plugins")
    assert not values(made)["testFramework"]["enabled"]


@pytest.mark.slow
def test_it_shows_the_dashboards_of_the_site_by_name_and_without_a_right_at_the_api_server(
    made: dict[str, Any], tmp_path: Path
) -> None:
    (volume,) = values(made)["extraContainerVolumes"]
    mounted = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    maps = {body["metadata"]["name"]: body for body in made.values() if body.get("kind") == "ConfigMap"}
    assert len(mounted) == len(grafana.dashboards())
    assert {maps[name]["metadata"]["namespace"] for name in mounted} == {made["grafana-grafana"]["namespace"]}
    (mount,) = values(made)["extraVolumeMounts"]
    (provider,) = values(made)["dashboardProviders"]["dashboardproviders.yaml"]["providers"]
    assert provider["options"]["path"] == mount["mountPath"]
    files = {f"{mount['mountPath']}/{file}" for name in mounted for file in maps[name]["data"]}
    assert values(made)["env"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in files
    assert values(made)["rbac"] == {"create": False}
    assert values(made)["automountServiceAccountToken"] is False
    fewer = values(declared(tmp_path, {**PASSWORD, "monitoring.hosts": None})[0])
    assert {"configMap": {"name": "dashboard-hosts"}} not in fewer["extraContainerVolumes"][0]["projected"]["sources"]


def test_each_dashboard_finds_the_sites_prometheus(made: dict[str, Any]) -> None:
    """By their variable, which takes the default source of its type; no panel names another one."""
    (source,) = values(made)["datasources"]["datasources.yaml"]["datasources"]
    assert (source["uid"], source["isDefault"]) == (SOURCE_UID, True)
    assert source["url"] == prometheus.ADDRESS
    for text in grafana.dashboards().values():
        board = json.loads(text)
        asked = {entry["query"] for entry in board["templating"]["list"] if entry["type"] == "datasource"}
        assert asked == {source["type"]}
        assert set(re.findall(r'"datasource": \{"type": "(\w+)", "uid": "([^"]+)"', text)) == {
            (source["type"], "${datasource}")
        }


@pytest.mark.row("004.11")
def test_whom_it_reaches_and_who_reaches_it(made: dict[str, Any], by_issuer: dict[str, Any]) -> None:
    """Prometheus, names, and the issuer at its port; what measures, and the site's proxy where it names one."""
    alone, open_ = (site["grafana-network-policy-grafana"]["spec"] for site in (made, by_issuer))
    assert alone["policyTypes"] == open_["policyTypes"] == ["Ingress", "Egress"]
    (measures,) = alone["ingress"]
    assert [entry["podSelector"]["matchLabels"] for entry in measures["from"]] == [prometheus.LABELS]
    proxy = next(rule for rule in open_["ingress"] if rule != measures)
    (from_,) = proxy["from"]
    assert from_["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ingress"}
    assert [port["port"] for rule in alone["egress"] for port in rule["ports"]] == [9090, 53, 53]
    assert [port["port"] for rule in open_["egress"] for port in rule["ports"]] == [9090, 53, 53, 8443]
    (asked,) = made["monitoring-network-policy-prometheus"]["spec"]["ingress"]
    pods = made["grafana-network-policy-grafana"]["spec"]["podSelector"]
    assert {"podSelector": pods} in asked["from"]


def test_no_password_is_in_values_and_secrets_are_named(made: dict[str, Any], by_issuer: dict[str, Any]) -> None:
    assert values(made)["admin"] == {
        "existingSecret": "grafana-admin",
        "userKey": "admin-user",
        "passwordKey": "admin-password",
    }
    assert "adminPassword" not in values(made)
    env = values(by_issuer)["env"]
    assert env["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == env["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert env["GF_AUTH_BASIC_ENABLED"] == "false"
    assert values(by_issuer)["envValueFrom"] == {
        "GF_AUTH_GENERIC_OAUTH_CLIENT_SECRET": {"secretKeyRef": {"name": "grafana-login", "key": "client-secret"}}
    }
    needed = f"Secret {namespaces.MONITORING}/grafana-admin with admin-password and admin-user"
    assert needed in by_hand(planned(PASSWORD))
    assert f"Secret {namespaces.MONITORING}/grafana-login with client-secret" in by_hand(planned(LOGIN))


def test_groups_of_the_clusters_administrators_have_roles_and_no_one_else_gets_in(by_issuer: dict[str, Any]) -> None:
    env = values(by_issuer)["env"]
    path = env["GF_AUTH_GENERIC_OAUTH_ROLE_ATTRIBUTE_PATH"]
    # The first that fits decides.
    assert [re.fullmatch(r"contains\(\"roles\"\[\*\], '(.+)'\) && '(.+)'", part) for part in path.split(" || ")]
    assert re.findall(r"'([^']+)'\) && '(\w+)'", path) == [
        ("platform", "Admin"),
        ("on-call", "Editor"),
        ("all staff", "Viewer"),
        ("cn=ml,ou=groups", "Viewer"),
    ]
    assert env["GF_AUTH_GENERIC_OAUTH_ROLE_ATTRIBUTE_STRICT"] == "true"
    assert env["GF_SERVER_ROOT_URL"] == "https://grafana.site.example/"
    assert env["GF_SECURITY_COOKIE_SECURE"] == "true"
    # Beside public certificates, by a folder; other ones are another name, and so another pod.
    (roots,) = values(by_issuer)["extraObjects"]
    (mount,) = values(by_issuer)["extraConfigmapMounts"]
    assert (mount["configMap"], mount["mountPath"]) == (roots["metadata"]["name"], env["SSL_CERT_DIR"])
    assert roots["data"]["roots.pem"].strip() == ROOT.strip()


def test_it_comes_after_the_prometheus_that_it_asks(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    made, requests = both
    after = {urn.rpartition("::")[2] for urn in requests["grafana-grafana"].dependencies}
    assert {"monitoring-prometheus", "monitoring-alertmanager", "grafana-network-policy-grafana"} <= after
    assert [body["metadata"]["name"] for body in made.values() if body.get("kind") == "Namespace"].count(
        namespaces.MONITORING
    ) == 1
    (endpoint,) = made["monitoring-monitor-grafana"]["spec"]["podMetricsEndpoints"]
    assert endpoint["metricRelabelings"] == [{"action": "drop", "sourceLabels": ["__name__"], "regex": ".+"}]


@pytest.mark.slow
def test_a_site_that_does_not_ask_has_nothing_of_it(both: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    off, on = declared(tmp_path, {})[0], both[0]
    asked = "monitoring-network-policy-prometheus"
    assert {name for name in on.keys() - off.keys() if "grafana" not in name} <= {asked}
    assert not [name for name in off if "grafana" in name]
    # Its job is one that must have a target. Definitions are read from another folder.
    rest = {name for name in off if not name.startswith("crds-")}
    assert {name for name in rest if on[name] != off[name]} <= {"monitoring-rules", asked}


def test_preview_says_who_gets_in_and_what_is_kept() -> None:
    assert not [text for text in planned({}).texts if text.startswith("grafana:")]
    (alone,) = [text for text in planned(PASSWORD).texts if text.startswith("grafana:")]
    assert "by a forwarded port alone" in alone
    assert "one administrator, by the Secret grafana-admin" in alone
    (text,) = [text for text in planned(LOGIN).texts if text.startswith("grafana:")]
    assert "at https://grafana.site.example, by way of the namespace ingress" in text
    assert "Admin: platform; Editor: on-call; Viewer: all staff, cn=ml,ou=groups" in text
    assert "is lost when its pod restarts" in text


WRONG = {
    "no login": Wrong(
        {G: {"run_by": "platform"}}, G, "has neither of login and admin_secret", {f"{G}.admin_secret": "x"}
    ),
    "two logins": Wrong(
        {**LOGIN, f"{G}.admin_secret": "x"}, G, "has both of login and admin_secret", {f"{G}.admin_secret": None}
    ),
    "not run": Wrong(
        {G: {"admin_secret": "x"}},
        G,
        "admin_secret set, and run_by external reads nothing of it",
        {f"{G}.run_by": "platform"},
    ),
    "no issuer": Wrong(
        {G: {"run_by": "platform", "login": ISSUER}},
        f"{G}.login",
        "takes issuer and groups of cluster.machines.administrators, and the site has none",
        {ADMINISTRATORS: PEOPLE},
    ),
    "sign of another language": Wrong(
        {**LOGIN, f"{ADMINISTRATORS}.viewers": ["it's"]},
        f"{ADMINISTRATORS}.viewers.0",
        "has a sign that Grafana reads as something else",
        {f"{ADMINISTRATORS}.viewers": ["its"]},
    ),
    "below a path": Wrong(
        {**LOGIN, f"{G}.proxy.url": "https://site.example/grafana"},
        f"{G}.proxy.url",
        "the address of a host, without a path",
        {f"{G}.proxy.url": "https://grafana.site.example"},
    ),
    "in the clear": Wrong(
        {**LOGIN, f"{G}.login.token_url": "http://login.site.example/token"},
        f"{G}.login.token_url",
        "an https address of the issuer",
        {f"{G}.login.token_url": "https://login.site.example/token"},
    ),
    "another Prometheus": Wrong(
        {"monitoring": {"system": "external", "scraper_namespace": "watch", "grafana": PASSWORD[G]}},
        f"{G}.run_by",
        "platform shows what the program's own Prometheus measured",
        {G: {"run_by": "external"}},
    ),
    "nothing measured": Wrong(
        {"monitoring": {"system": "none", "grafana": PASSWORD[G]}}, G, "is set, and system none does not read it"
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_site_that_cannot_work_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
