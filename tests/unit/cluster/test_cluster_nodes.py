from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from lab.cluster import nodes
from lab.errors import LabError
from lab.paths import NetworkPlan

PLAN = NetworkPlan(index=0)


def test_machines_are_one_infra_node_and_the_hgx_nodes() -> None:
    found = nodes.machines(2)
    assert [(n.name, n.role, n.ordinal) for n in found] == [
        ("infra-1", "infra", 0),
        ("hgx-1", "hgx-h200", 1),
        ("hgx-2", "hgx-h200", 2),
    ]


@pytest.mark.parametrize("count", [-1, 31])
def test_too_many_nodes_are_refused_with_the_limit(count: int) -> None:
    with pytest.raises(LabError, match="holds 0 to 30"):
        nodes.machines(count)


def test_the_last_node_that_is_allowed_fits_the_address_plan() -> None:
    last = nodes.machines(nodes.MOST_NODES - 1)[-1]
    manifest = nodes.node_manifest(last, PLAN)
    assert IPv4Network(manifest["spec"]["podCIDR"]).subnet_of(PLAN.pods)


def test_hgx_node_has_gpus_taint_and_the_labels_that_selectors_use() -> None:
    node = nodes.machines(1)[1]
    manifest = nodes.node_manifest(node, PLAN)
    status = nodes.node_status(node, PLAN)["status"]
    assert status["capacity"] == status["allocatable"]
    assert (status["capacity"]["nvidia.com/gpu"], status["capacity"]["cpu"], status["capacity"]["memory"]) == (
        "8",
        "192",
        "2Ti",
    )
    assert manifest["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert manifest["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    labels = manifest["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
    assert labels["nvidia.com/gpu.memory"] == "143771"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["feature.node.kubernetes.io/pci-10de.present"] == "true"


def test_infra_node_has_nothing_of_a_gpu() -> None:
    node = nodes.machines(0)[0]
    text = str((nodes.node_manifest(node, PLAN), nodes.node_status(node, PLAN)))
    assert "nvidia" not in text
    assert "taints" not in text


def test_addresses_and_pod_subnets_do_not_meet() -> None:
    found = nodes.machines(30)
    subnets = [IPv4Network(nodes.node_manifest(node, PLAN)["spec"]["podCIDR"]) for node in found]
    assert len(set(subnets)) == len(found)
    addresses = {nodes.node_status(node, PLAN)["status"]["addresses"][0]["address"] for node in found}
    assert len(addresses) == len(found)
    assert not any(PLAN.node_address(node.ordinal) in subnet for node in found for subnet in subnets)
