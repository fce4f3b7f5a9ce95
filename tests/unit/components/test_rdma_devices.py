"""What makes Kubernetes offer RDMA devices: values, the policy and its fields, order, and when it counts as ready."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.addon import AddonSite
from components.addons.charts import Chart
from components.addons.installed import InstalledAddon
from components.addons.rdma_devices import (
    NETWORK_OPERATOR,
    network_operator_values,
    nic_cluster_policy,
    plugin_config,
)
from components.specs.rdma_devices import LinkKind, RdmaDevicesSpec
from floor import namespaces
from floor.taints import GPU_TAINT, Taint
from lab.plugins.kubernetes.awaiting.expressions import parse
from stacks.facts import versions
from stacks.plan.charts import installed_charts
from stacks.plan.conflicts import conflicts
from stacks.plan.images import site_images
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program.addons import charts_of, check_values, releases_of
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.spine.test_platform import Recorder as Engine
from tests.unit.spine.test_platform import declare, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01")

ON = {"cluster.rdma_devices": {"system": "network_operator"}, "cluster.machines.hgx.rdma": "roce"}
SPEC = RdmaDevicesSpec(system="network_operator")
IMAGE = "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:network-operator-v26.4.1"
DIGEST = f"sha256:{'0' * 64}"
OWN = Taint(key="site.example/rented", value="yes", effect="NoExecute")


def site(change: dict[str, Any] | None = None) -> SitePlan:
    return plan_values(changed(prod(), {**ON, **(change or {})}), "site.yaml")


def policy(spec: RdmaDevicesSpec = SPEC, link: LinkKind | None = "roce", *, waits: bool = False) -> dict[str, Any]:
    return nic_cluster_policy(spec, link, [GPU_TAINT, OWN], IMAGE, waits=waits)


def offer(spec: RdmaDevicesSpec, link: LinkKind | None) -> Any:
    (only,) = json.loads(plugin_config(spec, link))["configList"]
    return only


def test_the_operator_brings_no_driver_no_virtual_functions_and_no_second_feature_discovery() -> None:
    values = network_operator_values()
    assert values["nfd"] == {"enabled": False, "deployNodeFeatureRules": False}
    assert values["sriovNetworkOperator"] == values["maintenanceOperator"] == {"enabled": False}
    assert values["operator"]["ofedDriver"] == {"initContainer": {"enable": False}}
    assert policy()["spec"].keys() == {"tolerations", "nodeAffinity", "rdmaSharedDevicePlugin"}


def test_every_value_is_one_that_the_chart_documents() -> None:
    plan = site()
    charts = charts_of(plan)
    check_values(plan, charts)
    assert releases_of(plan, charts)["network_operator"].hooks_upgrade_definitions


@pytest.mark.parametrize(("link", "link_type"), [("roce", "ether"), ("infiniband", "infiniband")])
def test_cards_are_chosen_by_vendor_and_by_the_link_of_the_machines(link: LinkKind, link_type: str) -> None:
    assert offer(SPEC, link) == {
        "resourceName": "hca_shared",
        "resourcePrefix": "rdma",
        "rdmaHcaMax": 63,
        "selectors": {"vendors": ["15b3"], "linkTypes": [link_type]},
    }


def test_a_site_may_name_the_interfaces_and_what_pods_ask_for() -> None:
    spec = RdmaDevicesSpec(resource="fabric", pods_per_node=8, interfaces=("enp26s0f0np0",))
    made = offer(spec, None)
    assert (made["resourceName"], made["rdmaHcaMax"]) == ("fabric", 8)
    assert made["selectors"] == {"vendors": ["15b3"], "ifNames": ["enp26s0f0np0"]}


def test_the_operator_puts_the_configuration_between_single_quotes() -> None:
    """In its template of the ConfigMap, so one in the text would end it."""
    assert "'" not in plugin_config(RdmaDevicesSpec(interfaces=("enp26s0f0np0",)), "roce")


def test_the_plugin_runs_on_nodes_with_gpus_whatever_their_taints() -> None:
    spec = policy()["spec"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "site.example/rented", "operator": "Exists", "effect": "NoExecute"},
    ]
    (term,) = spec["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (wanted,) = term["matchExpressions"]
    assert (wanted["key"], wanted["values"]) == ("feature.node.kubernetes.io/pci-10de.present", ["true"])


@pytest.mark.parametrize(
    ("image", "version"), [(IMAGE, "network-operator-v26.4.1"), (f"{IMAGE}@{DIGEST}", DIGEST)], ids=["tag", "digest"]
)
def test_the_plugins_image_is_the_pinned_one(image: str, version: str) -> None:
    plugin = nic_cluster_policy(SPEC, "roce", [], image, waits=False)["spec"]["rdmaSharedDevicePlugin"]
    joined = f"{plugin['repository']}/{plugin['image']}"
    assert (joined, plugin["version"]) == (IMAGE.rpartition(":")[0], version)


# Fields of NicClusterPolicy and of the plugin's configuration, and what they hold: definitions of network-operator
# 26.4.1 (mellanox.com_nicclusterpolicies.yaml, v1alpha1), README of k8s-rdma-shared-dev-plugin.
_FIELDS = {
    "tolerations[].key": "text",
    "tolerations[].operator": "text",
    "tolerations[].effect": "text",
    **{
        "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[]" + field: to
        for field, to in ((".key", "text"), (".operator", "text"), (".values[]", "text"))
    },
    "rdmaSharedDevicePlugin.repository": r"[a-zA-Z0-9\.\-\/]+",
    "rdmaSharedDevicePlugin.image": r"[a-zA-Z0-9\-]+",
    "rdmaSharedDevicePlugin.version": "text",
    "rdmaSharedDevicePlugin.config": "text",
    "rdmaSharedDevicePlugin.containerResources[].name": "text",
    "rdmaSharedDevicePlugin.containerResources[].requests.cpu": r"[0-9]+m",
    "rdmaSharedDevicePlugin.containerResources[].requests.memory": r"[0-9]+Mi",
}
_CONFIG_FIELDS = {"resourceName", "resourcePrefix", "rdmaHcaMax", "selectors", "devices"}
_SELECTORS = {"vendors", "deviceIDs", "drivers", "ifNames", "linkTypes"}


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner, f"{path}[]")]
    return [(path, value)]


def test_every_field_is_one_of_the_pinned_definitions() -> None:
    """And the status has no generation there: with conditions that have one, `up` can wait for a change in full."""
    assert versions.load().charts["network_operator"].version == "26.4.1", "compare the fields with the new definitions"
    body = policy()
    assert (body["apiVersion"], body["metadata"]["name"]) == ("mellanox.com/v1alpha1", "nic-cluster-policy")
    for path, value in _leaves(body["spec"]):
        assert isinstance(value, str), path
        assert _FIELDS[path] == "text" or re.fullmatch(_FIELDS[path], value), path
    made = offer(RdmaDevicesSpec(interfaces=("ib0",)), "infiniband")
    assert made.keys() <= _CONFIG_FIELDS
    assert made["selectors"].keys() <= _SELECTORS


def test_operator_and_plugin_of_two_releases_are_refused() -> None:
    pins = versions.load()
    plugin = pins.images.rdma_device_plugin
    assert conflicts(pins, site().site) == []
    older = pins.model_copy(
        update={"images": pins.images.model_copy(update={"rdma_device_plugin": plugin.replace("26.4.1", "26.1.2")})}
    )
    assert [conflict.row.id for conflict in conflicts(older, site().site)] == ["network-operator-device-plugin"]
    assert conflicts(older, plan_values(prod(), "site.yaml").site) == []


def test_a_site_that_offers_none_has_neither_chart_nor_image() -> None:
    # The same modules: with others the installers have other kernel arguments.
    none, some = plan_values(changed(prod(), {"cluster.machines.hgx.rdma": "roce"}), "site.yaml"), site()
    assert [name for name in installed_charts(some.site) if name not in installed_charts(none.site)] == [
        "network_operator"
    ]
    new = set(some.images) - set(none.images)
    assert new == {IMAGE, "nvcr.io/nvidia/cloud-native/network-operator:v26.4.1"}
    assert site_images(some.site, some.versions.images, some.models, some.machines)[IMAGE] == ["RDMA devices"]


def requests(*, waits: bool = True) -> tuple[dict[str, Any], Any]:
    """What the engine gets, and what the handle waits for."""
    recorder, ready = Recorder(), set[str]()

    async def run() -> None:
        about = AddonSite(
            section=SPEC,
            charts={"network_operator": Chart(chart="c", version="1.0.0", repository="https://charts.site.example")},
            images={"rdma_device_plugin": IMAGE},
            link="roce",
            gpu_taints=[GPU_TAINT],
            dead_nodes=not waits,
        )
        for resource in InstalledAddon(NETWORK_OPERATOR, about).ready:
            ready.add((await resource.urn.future() or "").rpartition("::")[2])
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    return recorder.requests, ready


def annotated(request: Any) -> dict[str, str]:
    body = pulumi.runtime.rpc.deserialize_properties(request.object)
    stated: dict[str, str] = body["metadata"].get("annotations", {})
    return stated


def names(dependencies: Any) -> set[str]:
    return {urn.rpartition("::")[2] for urn in dependencies}


def test_it_is_ready_when_the_operator_reports_that_the_plugin_runs() -> None:
    made, ready = requests()
    (holds,) = parse(annotated(made["rdma-devices-policy"])["pulumi.com/waitFor"])
    assert not holds({"status": {"state": "notReady"}}).ready
    assert holds({"status": {"state": "ready"}}).ready
    assert "rdma-devices-policy" in ready
    assert "pulumi.com/waitFor" not in annotated(requests(waits=False)[0]["rdma-devices-policy"])


@pytest.mark.slow
@pytest.mark.parametrize(("change", "waits"), [({}, True), ({"cluster.machines.nodes.hgx-4.dead": True}, False)])
def test_a_dead_node_s_plugin_is_not_waited_for(tmp_path: Path, change: dict[str, Any], waits: bool) -> None:
    _, made = requested(site(change).site, tmp_path, Engine())
    assert ("pulumi.com/waitFor" in annotated(made["rdma-devices-policy"])) == waits


@pytest.mark.slow
def test_a_site_with_a_gpu_stack_patches_no_object_twice(tmp_path: Path) -> None:
    """Both would be by one field manager, which then owns what the last of them states."""
    _, made = requested(site().site, tmp_path, Engine())
    patches = [request for request in made.values() if request.type.endswith("Patch")]
    patched = [(request.type, request.object["metadata"]["name"]) for request in patches]
    assert ("kubernetes:core/v1:NodePatch", "hgx-1") in patched
    assert len(patched) == len(set(patched))


def test_the_policy_goes_before_the_operator_that_takes_the_plugin_away() -> None:
    made, _ = requests()
    assert "rdma-devices-network-operator" in names(made["rdma-devices-policy"].dependencies)
    assert not made["rdma-devices-policy"].retainOnDelete


def test_its_namespace_takes_privileged_pods_and_lets_no_one_in() -> None:
    made, _ = requests()
    labels = made[f"{namespaces.NETWORK}-namespace"].object["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert namespaces.NETWORK in namespaces.PRIVILEGED
    assert [name for name in made if name.startswith("rdma-devices-network-policy")] == []


@pytest.mark.slow
def test_on_a_site_it_comes_after_the_gpus_and_no_model_waits_for_it(tmp_path: Path) -> None:
    _, made = requested(site().site, tmp_path, Engine())
    release = made["rdma-devices-network-operator"]
    assert "gpu-stack-gpu-operator" in names(release.dependencies), "which brings node feature discovery"
    waiting = {name for name, request in made.items() if "rdma-devices-policy" in names(request.dependencies)}
    assert waiting == set()


def test_the_links_and_taints_are_those_of_the_sites_machines(tmp_path: Path) -> None:
    rented = {"cluster.machines.roles.hgx.taints": {OWN.key: f"{OWN.value}:{OWN.effect}"}, "models": {}, "tenants": {}}
    plan = site({**rented, "cluster.machines.hgx.rdma": "infiniband"})
    recorder, _ = declare(plan.site, tmp_path)
    body = recorder.resources["rdma-devices-policy"].inputs["spec"]
    assert {"key": OWN.key, "operator": "Exists", "effect": OWN.effect} in body["tolerations"]
    (made,) = json.loads(body["rdmaSharedDevicePlugin"]["config"])["configList"]
    assert made["selectors"]["linkTypes"] == ["infiniband"]
