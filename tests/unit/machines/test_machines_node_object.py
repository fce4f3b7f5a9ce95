"""Who writes what of a Node: the kubelet once, Talos in one update, NVIDIA's controllers; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floor.taints import GPU_TAINT, Taint
from lab.machines.node_object import Node, NodeFacts, gpu_labels, new, refusal, with_settings

FACTS = NodeFacts(
    name="gpu",
    is_control_plane=False,
    addresses=(),
    pod_cidr="10.244.1.0/24",
    kubelet_version="v1.36.3",
    api_server_version="",
    os_image="",
    boot_id="b",
    capacity={},
    kubelet_labels={"kubernetes.io/hostname": "gpu"},
    registers_with=(GPU_TAINT,),
    labels={"site.example/rack": "r1"},
    annotations={"site.example/disks": "[]"},
    taints=(GPU_TAINT,),
)
OWN = Taint(key="site.example/own", value="a", effect="NoSchedule")


def taints(node: Node) -> list[dict[str, str]]:
    matching: list[dict[str, str]] = node["spec"].get("taints", [])
    return matching


def test_a_taint_that_the_kubelet_registered_lets_labels_and_annotations_through() -> None:
    registered = new(FACTS)
    node = with_settings(registered, FACTS)
    assert refusal(registered, node) == ""
    assert node["metadata"]["labels"]["site.example/rack"] == "r1"
    assert node["metadata"]["annotations"] == {
        "site.example/disks": "[]",
        "talos.dev/owned-labels": '["site.example/rack"]',
        "talos.dev/owned-annotations": '["site.example/disks"]',
        "talos.dev/owned-taints": '["nvidia.com/gpu"]',
    }
    assert with_settings(node, FACTS) == node


def test_a_taint_that_only_the_machine_config_has_loses_all_of_the_update() -> None:
    registered = new(replace(FACTS, registers_with=()))
    assert refusal(registered, with_settings(registered, FACTS)) == (
        'nodes "gpu" is forbidden: node "gpu" is not allowed to modify taints'
    )


@pytest.mark.parametrize("stated", [(), (replace(GPU_TAINT, value="other"),), (GPU_TAINT, OWN)])
def test_a_taint_that_changes_comes_or_goes_is_refused(stated: tuple[Taint, ...]) -> None:
    node = with_settings(new(FACTS), FACTS)
    changed = with_settings(node, replace(FACTS, taints=stated))
    assert taints(changed) == [taint.wire() for taint in stated]
    assert "not allowed to modify taints" in refusal(node, changed)


def test_a_taint_and_a_label_of_others_stay() -> None:
    foreign = {"key": "site.example/own", "value": "by hand", "effect": "NoExecute"}
    node = new(FACTS)
    node["spec"]["taints"].append(foreign)
    node["metadata"]["labels"] |= {"site.example/rack": "by hand", "of.somebody/else": "x"}
    made = with_settings(node, replace(FACTS, taints=(GPU_TAINT, OWN)))
    assert taints(made) == [GPU_TAINT.wire(), foreign]
    assert made["metadata"]["labels"]["site.example/rack"] == "by hand"
    assert "site.example/own" not in made["metadata"]["annotations"]["talos.dev/owned-taints"]
    left = with_settings(made, replace(FACTS, labels={}, annotations={}, taints=()))
    assert taints(left) == [foreign]
    assert left["metadata"]["labels"] == node["metadata"]["labels"]


@pytest.mark.parametrize(
    ("label", "passes"),
    [
        ("site.example/a", True),
        ("plain", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/rack", True),
        ("node-role.kubernetes.io/gpu", False),
        ("topology.kubernetes.io/rack", False),
        ("node-restriction.kubernetes.io/pool", False),
        ("x.k8s.io/pool", False),
    ],
)
def test_labels_in_domains_of_kubernetes_are_refused_but_for_a_few(label: str, *, passes: bool) -> None:
    node = new(FACTS)
    made = with_settings(node, replace(FACTS, labels={label: "x"}))
    assert (refusal(node, made) == "") is passes


def test_the_operator_sets_a_layout_only_where_there_is_none_and_its_labels_go_with_the_gpus() -> None:
    matching = replace(FACTS, gpu_labels={"nvidia.com/gpu.count": "8"})
    assert gpu_labels({}, matching) == {"nvidia.com/gpu.count": "8", "nvidia.com/mig.config": "all-disabled"}
    cut = {"nvidia.com/mig.config": "all-1g.18gb", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.mode": "x", "a": "b"}
    assert gpu_labels(cut, matching) == {"nvidia.com/gpu.mode": None}
    assert gpu_labels(cut, FACTS) == {"nvidia.com/gpu.mode": None, "nvidia.com/gpu.count": None}
