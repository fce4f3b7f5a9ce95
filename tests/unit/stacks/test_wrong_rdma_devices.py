"""RDMA devices that no node could offer, keys that nothing reads, and what the program cannot see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.addons.rdma_devices import nic_cluster_policy
from components.specs.rdma_devices import RdmaDevicesSpec
from floor.problems import Problem
from stacks.plan.site_plan import plan_file, plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("C.01", "opening 13")

VALID = Path(__file__).parents[2] / "fixtures" / "sites" / "valid"
KEY = "cluster.rdma_devices"
ON = {KEY: {"system": "network_operator"}}
RDMA = "cluster.machines.hgx.rdma"


@pytest.mark.parametrize("rdma", ["none", None])
@pytest.mark.parametrize("fixed", [{RDMA: "roce"}, {RDMA: "infiniband"}, {f"{KEY}.system": "none"}], ids=str)
def test_devices_of_machines_that_load_no_module_are_refused(rdma: str | None, fixed: dict[str, str]) -> None:
    refused_and_fixed(Wrong({**ON, RDMA: rdma}, f"{KEY}.system", "the machines load no module for them", fixed))


def test_devices_of_a_site_without_gpu_nodes_are_refused() -> None:
    document = prod_with_links()
    nodes = {name: node for name, node in document["cluster"]["machines"]["nodes"].items() if node["role"] != "hgx"}
    bare: dict[str, Any] = {"cluster.machines.nodes": nodes, "models": {}, "tenants": {}, "storage.system": "external"}
    bare |= {"storage.longhorn": None}
    refused_and_fixed(Wrong(ON | bare, f"{KEY}.system", "no machine has the role hgx", {f"{KEY}.system": "none"}))


@pytest.mark.parametrize(("key", "value"), [("resource", "fabric"), ("pods_per_node", 8), ("interfaces", ["ib0"])])
def test_a_key_that_nothing_reads_is_refused(key: str, value: Any) -> None:
    change: dict[str, Any] = {f"{KEY}.{key}": value}
    fixes: list[dict[str, Any]] = [{f"{KEY}.system": "network_operator"}, {f"{KEY}.{key}": None}]
    for fixed in fixes:
        refused_and_fixed(Wrong(change, f"{KEY}.{key}", "system none does not read it", fixed))


@pytest.mark.parametrize(
    ("key", "value", "at", "what"),
    [
        ("system", "sriov", "system", "allowed: none, network_operator"),
        ("resource", "rdma/hca", "resource", "without rdma/"),
        ("resource", "hca-shared", "resource", "inner underscores"),
        ("resource", "hca_", "resource", "inner underscores"),
        ("interfaces", ["enp26s0f0np0-too-long"], "interfaces.0", "at most 15 characters"),
        ("interfaces", ["ib0'"], "interfaces.0", "the name of a network interface"),
        ("pods_per_node", 0, "pods_per_node", "from 1 to 1000"),
    ],
)
def test_a_value_that_the_plugin_would_refuse_is_refused(key: str, value: Any, at: str, what: str) -> None:
    change = {KEY: {"system": "network_operator", key: value}}
    refused_and_fixed(Wrong(change, f"{KEY}.{at}", what, ON))


def warned(plan_warnings: Any) -> list[Problem]:
    return [warning for warning in plan_warnings if warning.key.startswith(KEY)]


def test_a_rack_that_brings_modules_and_labels_has_no_warning() -> None:
    assert warned(plan_values(changed(prod_with_links(), ON), "site.yaml").warnings) == []
    assert warned(plan_values(prod_with_links(), "site.yaml").warnings) == []


def test_labels_of_a_stack_of_the_sites_own_are_warned_of() -> None:
    (warning,) = warned(
        plan_values(changed(prod_with_links(), ON | {"cluster.gpu_stack": "external"}), "site.yaml").warnings
    )
    image = "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:network-operator-v26.4.1"
    policy = nic_cluster_policy(RdmaDevicesSpec(), None, (), image, waits=False)
    (term,) = policy["spec"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    # The operator adds the first itself.
    wanted = ["pci-15b3.present", *(rule["key"].rpartition("/")[2] for rule in term["matchExpressions"])]
    assert [label for label in wanted if label not in warning.what] == []


def test_modules_of_an_existing_cluster_are_warned_of(tmp_path: Path) -> None:
    text = (VALID / "shared-cluster.yaml").read_text()
    own = "    cluster: {"
    assert own in text
    file = tmp_path / "Pulumi.shared.yaml"
    file.write_text(text.replace(own, f"{own}rdma_devices: {{system: network_operator}}, "))
    warnings = warned(plan_file(file).warnings)
    assert any("does not see which modules" in warning.what for warning in warnings), warnings
    assert all(warning.fix for warning in warnings)
