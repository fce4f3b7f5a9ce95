"""What makes Kubernetes offer GPUs: values, order, and when it counts as ready."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

import pulumi
import pytest
from pulumi.runtime.stack import wait_for_rpcs

from components.addons import gpu_counters, gpu_stack
from components.addons.addon import AddonSite, Offer
from components.addons.charts import Chart
from components.addons.gpu_stack import (
    DEVICE_PLUGIN,
    GPU_OPERATOR,
    Stack,
    device_plugin_values,
    exporter_values,
    operator_values,
)
from components.addons.installed import InstalledAddon
from floor.problems import SiteError
from floor.taints import GPU_TAINT, Taint
from stacks.facts import metrics, versions
from stacks.plan.charts import installed_charts
from stacks.plan.conflicts import conflicts
from stacks.plan.node_taints import gpu_node_taints
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program.addons import ChartValuesError, charts_of, check_values, releases_of
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.stacks.site_examples import prod, under_later_operator
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01", "000.12")

STACKS: tuple[Stack, ...] = ("operator", "device_plugin")
GPUS = Offer(resource="nvidia.com/gpu", count=8)
OWN = Taint(key="site.example/rented", value="yes", effect="NoExecute")


def site(stack: str) -> SitePlan:
    return plan_values(changed(prod(), {"cluster.gpu_stack": stack}), "site.yaml")


def test_the_operator_takes_driver_and_toolkit_as_talos_brings_them() -> None:
    values = operator_values([GPU_TAINT])
    assert values["driver"] == values["toolkit"] == {"enabled": False}
    assert values["hostPaths"] == {"driverInstallDir": "/usr/local"}
    assert values["operator"]["runtimeClass"] == "nvidia"


def test_the_exporter_counts_what_alerts_and_boards_read() -> None:
    """Its default list leaves out NVLink's errors and the fabric. It does not start with a line of four fields."""
    lines = gpu_counters.csv().splitlines()
    assert "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, counter, Total number of NVLink recovery errors." in lines
    assert any(line.startswith("DCGM_FI_DEV_FABRIC_MANAGER_STATUS, gauge, ") for line in lines)
    assert {len(record) for record in csv.reader(lines)} == {3}
    config = operator_values([GPU_TAINT])["dcgmExporter"]["config"]
    assert config == {"name": "dcgm-counters", "create": True, "data": gpu_counters.csv()}
    assert exporter_values([GPU_TAINT])["customMetrics"] == gpu_counters.csv()
    known = metrics.load()["dcgm_exporter"]
    types = {name: kind for name, (kind, _) in gpu_counters.FIELDS.items() if kind != "label"}
    assert types == dict.fromkeys(known.counters, "counter") | dict.fromkeys(known.gauges, "gauge")


def test_gpus_are_found_by_the_drivers_library_where_no_operator_is() -> None:
    values = device_plugin_values([GPU_TAINT])
    assert (values["deviceDiscoveryStrategy"], values["runtimeClassName"]) == ("nvml", "nvidia")
    assert gpu_stack.runtime_class()["handler"] == "nvidia"


@pytest.mark.parametrize("values", [operator_values, device_plugin_values])
def test_gpus_are_offered_whole_where_no_machine_has_them_cut(values: Any) -> None:
    made = values([GPU_TAINT])
    assert (made.get("mig") or {"strategy": made.get("migStrategy")}) == {"strategy": "none"}
    assert made.get("migManager") in ({"enabled": False}, None)


def test_the_operator_cuts_gpus_where_a_machine_names_a_layout() -> None:
    """Slices get resources of their own, and whole GPUs of other nodes keep theirs: strategy mixed."""
    layout = {"cluster.gpu_stack": "external", "cluster.machines.nodes.hgx-4.mig": "all-disabled"}
    plan = under_later_operator(plan_values(changed(prod(), layout), "site.yaml"))
    charts = charts_of(plan)
    check_values(plan, charts)
    values = releases_of(plan, charts)["gpu_operator"].values
    assert values["mig"] == {"strategy": "mixed"}
    assert values["migManager"]["enabled"]
    assert values["migManager"]["env"] == [{"name": "WITH_SHUTDOWN_HOST_GPU_CLIENTS", "value": "false"}]
    same = {key: value for key, value in values.items() if key not in ("mig", "migManager")}
    whole = releases_of(site("operator"), charts)["gpu_operator"].values
    assert same == {key: value for key, value in whole.items() if key not in ("mig", "migManager")}


def test_a_node_that_is_cut_is_ready_when_it_offers_all_its_slices() -> None:
    made, _ = requests("operator", {"hgx-1": Offer(resource="nvidia.com/mig-1g.18gb", count=56)})
    assert wait(made["gpu-stack-offered-hgx-1"])[1] == "jsonpath={.status.allocatable['nvidia.com/mig-1g.18gb']}=56"


def test_the_stacks_pods_run_on_every_node_with_gpus() -> None:
    """Its own taints and those of the site, once each; a NoExecute one would evict them."""
    rented = {"cluster.machines.roles.hgx.taints": {OWN.key: f"{OWN.value}:{OWN.effect}"}}
    values = changed(prod(), {**rented, "models": {}, "tenants": {}})
    taints = gpu_node_taints(plan_values(values, "site.yaml").site)
    assert taints == [GPU_TAINT, OWN]
    wanted = [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "site.example/rented", "operator": "Exists", "effect": "NoExecute"},
    ]
    operator, plugin, exporter = operator_values(taints), device_plugin_values(taints), exporter_values(taints)
    for answered in (
        operator["daemonsets"]["tolerations"],
        operator["node-feature-discovery"]["worker"]["tolerations"],
        plugin["tolerations"],
        plugin["nfd"]["worker"]["tolerations"],
        exporter["tolerations"],
    ):
        assert answered == wanted


@pytest.mark.parametrize("stack", STACKS)
def test_every_value_is_one_that_its_chart_documents(stack: str) -> None:
    plan = site(stack)
    charts = charts_of(plan)
    check_values(plan, charts)
    own = set(installed_charts(plan.site)) - set(installed_charts(site("external").site))
    assert own
    assert own <= set(releases_of(plan, charts))


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"toolkit": {"enabeld": False}}, "toolkit.enabeld: gpu-operator v26.7.1 documents no such value"),
        ({"driver": {"enabled": "no"}}, "driver.enabled: is str, and gpu-operator v26.7.1 reads a switch"),
        ({"mig": {"strategy": False}}, "mig.strategy: is bool, and gpu-operator v26.7.1 reads a text"),
        ({"daemonsets": {"tolerations": {}}}, "daemonsets.tolerations: is dict, and gpu-operator v26.7.1 reads a list"),
        ({"driver": False}, "driver: gpu-operator v26.7.1 documents no such value"),
    ],
)
def test_a_value_that_no_chart_reads_is_found(
    values: dict[str, Any], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = site("operator")
    monkeypatch.setattr(gpu_stack, "operator_values", lambda _, *, cuts: values if not cuts else {})
    with pytest.raises(ChartValuesError, match=r"components/addons") as caught:
        check_values(plan, charts_of(plan))
    assert wrong in str(caught.value)


def test_an_operator_that_never_finds_talos_driver_is_refused() -> None:
    pins = versions.load()
    old = pins.charts["gpu_operator"].model_copy(update={"version": "v25.10.1"})
    pins = pins.model_copy(update={"charts": pins.charts | {"gpu_operator": old}})
    speaking = {stack: conflicts(pins, site(stack).site) for stack in (*STACKS, "external")}
    assert [conflict.row.id for conflict in speaking["operator"]] == ["gpu-operator-talos-driver"]
    assert speaking["device_plugin"] == speaking["external"] == []


def test_a_stack_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(SiteError, match=r"cluster.gpu_stack"):
        site("operators")


def requests(stack: Stack, nodes: Mapping[str, Offer], version: str = "1.0.0") -> tuple[dict[str, Any], set[str]]:
    """What the engine gets of a stack, and what its handle waits for."""
    recorder, ready = Recorder(), set[str]()

    async def run() -> None:
        chart = Chart(chart="c", version=version, repository="https://charts.site.example")
        charts = dict.fromkeys(("gpu_operator", "device_plugin", "dcgm_exporter"), chart)
        about = AddonSite(charts=charts, gpu_taints=[GPU_TAINT], offers=nodes)
        addon = GPU_OPERATOR if stack == "operator" else DEVICE_PLUGIN
        for resource in InstalledAddon(addon, about).ready:
            ready.add((await resource.urn.future() or "").rpartition("::")[2])
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    return recorder.requests, ready


@pytest.mark.parametrize(
    ("preview", "nodes", "count"), [(False, {"hgx-1": GPUS}, 1), (False, {}, 0), (True, {"hgx-1": GPUS}, 0)]
)
def test_up_names_the_command_that_shows_what_a_node_waits_for(
    preview: bool, nodes: Mapping[str, Offer], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a wait is the provider's, and names no state. Where nothing is waited for, there is none."""
    shown = list[str]()
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_: shown.append(text))

    async def run() -> None:
        chart = Chart(chart="c", version="1.0.0", repository="https://charts.site.example")
        charts = dict.fromkeys(("device_plugin", "dcgm_exporter"), chart)
        InstalledAddon(DEVICE_PLUGIN, AddonSite(charts=charts, gpu_taints=[GPU_TAINT], offers=nodes))
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, stack="berlin", preview=preview, monitor=Recorder())
    assert ["gpu-nodes berlin" in text and "30 minutes" in text for text in shown] == [True] * count


def wait(request: Any) -> tuple[str, str]:
    """What a mark is on, and what it waits for."""
    body = pulumi.runtime.rpc.deserialize_properties(request.object)
    annotations = body["metadata"]["annotations"]
    return f"{request.type} {body['metadata']['name']}", annotations["pulumi.com/waitFor"]


def names(dependencies: Any) -> set[str]:
    return {urn.rpartition("::")[2] for urn in dependencies}


@pytest.mark.parametrize("stack", STACKS)
def test_the_stack_is_ready_when_each_node_offers_all_its_gpus(stack: Stack) -> None:
    made, ready = requests(stack, {"hgx-1": GPUS, "hgx-2": GPUS})
    marks = {f"gpu-stack-offered-{node}" for node in ("hgx-1", "hgx-2")}
    assert marks <= ready
    for node in ("hgx-1", "hgx-2"):
        mark = made[f"gpu-stack-offered-{node}"]
        assert wait(mark) == (
            f"kubernetes:core/v1:NodePatch {node}",
            "jsonpath={.status.allocatable['nvidia.com/gpu']}=8",
        )
        assert {name for name in made if "Release" in made[name].type} <= names(mark.dependencies)
        assert mark.customTimeouts.create == "1800s"
        assert mark.retainOnDelete, "taking it back would make a node again that has left"


def test_an_operator_whose_nodes_are_unknown_is_ready_when_it_says_so() -> None:
    made, ready = requests("operator", {})
    assert "gpu-stack-validated" in ready
    state = "jsonpath={.status.state}=ready"
    assert wait(made["gpu-stack-validated"]) == ("kubernetes:nvidia.com/v1:ClusterPolicyPatch cluster-policy", state)


def test_another_version_is_waited_for_again() -> None:
    marks = [
        requests("operator", {"hgx-1": GPUS}, version)[0]["gpu-stack-offered-hgx-1"] for version in ("1.0.0", "1.0.1")
    ]
    assert marks[0].object != marks[1].object


@pytest.mark.parametrize("stack", STACKS)
def test_the_stacks_namespace_takes_privileged_pods_and_refuses_all_but_scrapers(stack: Stack) -> None:
    made, _ = requests(stack, {})
    namespace = made["gpu-operator-namespace"].object["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "privileged"
    policy = made["gpu-stack-network-policy-dcgm-exporter"].object["spec"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [9400]


def test_the_class_of_the_replicas_is_there_before_the_plugin() -> None:
    """The operator makes it itself; its pods and the replicas would be refused without it."""
    made, _ = requests("device_plugin", {})
    assert "gpu-stack-runtimeclass-nvidia" in names(made["gpu-stack-nvidia-device-plugin"].dependencies)
    assert "gpu-stack-runtimeclass-nvidia" not in requests("operator", {})[0]


def test_helm_lets_the_operators_hooks_upgrade_its_definitions() -> None:
    release = requests("operator", {})[0]["gpu-stack-gpu-operator"].object
    assert release["disableOpenapiValidation"]
    assert "skipCrds" not in release
