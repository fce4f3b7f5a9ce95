"""Values of every chart that a site may install, against what the chart documents."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from stacks.facts import chart_values, versions
from stacks.facts.chart_values import ChartValues
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program import addons
from stacks.program.addons import ChartValuesError, charts_of, check_values, values_of
from tests.unit.stacks.site_examples import OTHER_ADDONS, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01", "000.12")

CHARTS = tuple(versions.load().charts)
# Charts whose project serves no source of the pinned version: the version that was read, and the pinned one. With a
# raised pin, read the new values, and change the row or take it out.
READ_BEFORE = {
    "gpu_operator": ("v26.7.0", "v26.7.1"),
    "dcgm_exporter": ("4.8.2", "4.8.3"),
    "keda": ("2.20.2", "2.21.0"),
}
SPANNING: dict[str, Any] = {
    "cluster.rdma_devices": {"system": "network_operator"},
    "cluster.machines.hgx.rdma": "infiniband",
    "models": {"glm-5-1": {"catalogue": "glm-5.1-fp8", "server": {"replicas": 2, "nodes": 2}}},
    "tenants": {},
}
EVERY_ADDON: list[dict[str, Any]] = [
    {
        "cluster.gpu_stack": "operator",
        "cluster.rdma_devices": {"system": "network_operator"},
        "cluster.machines.hgx.rdma": "roce",
    },
    OTHER_ADDONS,
    SPANNING,
]


def site(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_that_a_site_may_install_has_a_list_of_the_pinned_version(name: str) -> None:
    pin, table = versions.load().charts[name], chart_values.load(name)
    assert (table.chart, table.version) == (pin.chart, pin.version)
    read, pinned = READ_BEFORE.get(name, (pin.version, pin.version))
    assert (table.read_version or table.version, table.version) == (read, pinned)
    tag = re.search(r"@(\S+) \S+/values(\.tmpl)?\.yaml$", table.read)
    assert tag, "repository@tag and the file"
    assert tag[1].endswith(read.removeprefix("v")), f"{name}: states {read}, and was read at {tag[1]}"


def test_lists_are_of_charts_alone() -> None:
    assert {path.stem for path in chart_values.FOLDER.glob("*.yaml")} == set(CHARTS)


@pytest.mark.parametrize("change", [*EVERY_ADDON, {"gateway.controllers": "external"}], ids=str)
def test_the_values_of_each_chart_that_a_site_installs_are_checked(change: dict[str, Any]) -> None:
    plan = site(change)
    charts = charts_of(plan)
    assert set(values_of(plan, charts)) == set(installed_charts(plan.site))
    check_values(plan, charts)


def test_the_value_by_which_clients_are_counted_is_checked_where_a_site_has_it() -> None:
    for system, has_it in (("prometheus_operator", True), ("none", False)):
        plan = site({"monitoring": {"system": system}})
        assert (
            "metricsRequestHeaderAttributes" in values_of(plan, charts_of(plan))["ai_gateway"]["controller"]
        ) == has_it


def test_no_chart_is_left_out() -> None:
    plans = [site(change) for change in EVERY_ADDON]
    assert {name for plan in plans for name in values_of(plan, charts_of(plan))} == set(CHARTS)


ENVOY, AI = "oci://docker.io/envoyproxy/gateway-helm v1.9.1", "oci://docker.io/envoyproxy/ai-gateway-helm v1.0.0"


@pytest.mark.parametrize(
    ("builder", "values", "wrong"),
    [
        ("envoy_gateway_values", {"crd": {"enabled": False}}, f"crd: {ENVOY} documents no such value"),
        ("envoy_gateway_values", {"crds": {"enabled": "no"}}, f"crds.enabled: is str, and {ENVOY} reads a switch"),
        (
            "envoy_gateway_values",
            {"config": {"envoyGateway": {"extensionManager": {"hook": {}}}}},
            f"config.envoyGateway.extensionManager.hook: {ENVOY} documents no such value",
        ),
        (
            "ai_gateway_values",
            {"controller": {"mcp": {"sessionEncryption": {"seeds": ""}}}},
            f"controller.mcp.sessionEncryption.seeds: {AI} documents no such value",
        ),
        (
            "envoy_gateway_values",
            {"deployment": {"replicas": True}},
            f"deployment.replicas: is bool, and {ENVOY} reads an integer",
        ),
        (
            "ai_gateway_values",
            {"extProc": {"enableRedaction": 1}},
            f"extProc.enableRedaction: is int, and {AI} reads a switch",
        ),
    ],
)
def test_a_gateways_value_that_its_chart_does_not_read_is_found(
    builder: str, values: dict[str, Any], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = site({})
    monkeypatch.setattr(addons, builder, lambda *_, **__: values)
    with pytest.raises(ChartValuesError, match=r"components/gateway") as caught:
        check_values(plan, charts_of(plan))
    assert wrong in str(caught.value)


def test_a_list_is_held_against_the_values_of_a_chart() -> None:
    types = {"switch": ["a.on", "a.off"], "integer": ["b"], "text": ["c", "d"], "map": ["e"]}
    table = ChartValues.model_validate({"chart": "x", "version": "1.0.0", "read": "x/x@v1 values.yaml", "types": types})
    documented = {"a": {"on": True, "off": "no"}, "b": None, "c": True, "e": {"f": 1}}
    assert list(table.misread(yaml.safe_dump(documented))) == [
        "a.off: is str in its values.yaml, and a switch here",
        "c: is bool in its values.yaml, and a text here",
        "d: is not in its values.yaml",
    ]
    assert len(list(table.misread(yaml.safe_dump(documented) + '# d: "a value without a default"\n'))) == 2


def test_envoy_gateway_and_its_proxies_look_for_services_in_the_cluster_s_own_domain() -> None:
    plan = site({"cluster.machines.networks.dns_domain": "k8s.site.internal"})
    values = values_of(plan, charts_of(plan))["envoy_gateway"]
    assert values["kubernetesClusterDomain"] == "k8s.site.internal"
    service = values["config"]["envoyGateway"]["extensionManager"]["service"]
    assert service["fqdn"]["hostname"].endswith(".svc.k8s.site.internal")
