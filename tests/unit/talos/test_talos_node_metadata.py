"""What a config states of a node: what only an administrator can bring, and what the node still lacks."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from floor.taints import GPU_TAINT, Taint
from talos.cli.node_metadata import Stated, correction, missing
from tests.unit.talos import talos_examples as examples

OWN = Taint(key="site.example/own", value="a", effect="NoExecute")
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def stated(*taints: Taint, plane: bool = False, **texts: dict[str, str]) -> Stated:
    return Stated(
        labels=texts.get("labels", {}),
        annotations=texts.get("annotations", {}),
        taints={taint.key: taint for taint in taints},
        is_control_plane=plane,
    )


def node(*taints: dict[str, str], owned: tuple[str, ...] = (), **metadata: dict[str, str]) -> dict[str, Any]:
    annotations = metadata.pop("annotations", {})
    if owned:
        annotations = {**annotations, "talos.dev/owned-taints": json.dumps(owned)}
    return {
        "metadata": {"name": "n", "resourceVersion": "7", "annotations": annotations, **metadata},
        "spec": {"taints": list(taints)},
    }


def test_a_config_states_its_taints_and_that_of_a_control_plane_without_pods() -> None:
    documents = examples.hgx_config().wire()
    worker = Stated.of(yaml.safe_dump_all(documents).encode())
    assert worker.taints == {"nvidia.com/gpu": GPU_TAINT}
    assert worker.labels == documents[0]["machine"]["nodeLabels"]
    assert worker.annotations == documents[0]["machine"].get("nodeAnnotations", {})
    assert not worker.is_control_plane
    for allowed, keys in ((False, {"node-role.kubernetes.io/control-plane"}), (True, set())):
        config = {"machine": {"type": "controlplane"}, "cluster": {"allowSchedulingOnControlPlanes": allowed}}
        assert Stated.of(yaml.safe_dump(config).encode()).taints.keys() == keys


def test_nothing_is_done_to_a_node_that_is_as_stated() -> None:
    well = node(NOT_READY, GPU_TAINT.wire(), owned=("nvidia.com/gpu",), labels={"a": "b"})
    config = stated(GPU_TAINT, labels={"a": "b"})
    assert correction(well, config) == ({}, [])
    assert missing(well, config) == []


@pytest.mark.parametrize(
    ("held", "lines"),
    [
        ((), ["setting taint nvidia.com/gpu=present:NoSchedule"]),
        (
            ({"key": "nvidia.com/gpu", "value": "old", "effect": "NoSchedule"},),
            ["setting taint nvidia.com/gpu=present:NoSchedule", "removing taint nvidia.com/gpu=old:NoSchedule"],
        ),
        (
            # Talos takes the last one with the key for its own, and would change it for ever.
            (GPU_TAINT.wire(), {"key": "nvidia.com/gpu", "effect": "NoExecute"}),
            ["removing taint nvidia.com/gpu:NoExecute"],
        ),
    ],
)
def test_a_workers_taint_is_set_as_stated_and_those_of_others_stay(
    held: tuple[dict[str, str], ...], lines: list[str]
) -> None:
    patch, message = correction(node(NOT_READY, *held), stated(GPU_TAINT))
    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [NOT_READY, GPU_TAINT.wire()]}}
    assert message == lines


def test_a_taint_that_talos_set_and_the_config_no_longer_states_goes_and_is_no_longer_talos_own() -> None:
    by_hand = {"key": "of.somebody/else", "effect": "NoSchedule"}
    held = node(OWN.wire(), by_hand, GPU_TAINT.wire(), owned=(OWN.key, GPU_TAINT.key))
    patch, lines = correction(held, stated(GPU_TAINT))
    assert patch["spec"] == {"taints": [by_hand, GPU_TAINT.wire()]}
    assert patch["metadata"]["annotations"] == {"talos.dev/owned-taints": '["nvidia.com/gpu"]'}
    assert lines == ["removing taint site.example/own=a:NoExecute"]
    patch, _ = correction(held, stated())
    assert patch["metadata"]["annotations"] == {"talos.dev/owned-taints": None}


def test_talos_itself_changes_taints_of_control_planes() -> None:
    held = node(OWN.wire(), owned=(OWN.key,))
    assert correction(held, stated(GPU_TAINT, plane=True)) == ({}, [])
    assert missing(held, stated(GPU_TAINT, plane=True)) == ["taint nvidia.com/gpu=present:NoSchedule"]


def test_a_label_of_another_writer_becomes_the_configs_and_a_missing_one_is_left_to_talos() -> None:
    """The GPU operator labels each node `all-disabled` before the site asks for slices; Talos leaves that as it is."""
    held = node(
        labels={"nvidia.com/mig.config": "all-disabled", "own": "old"},
        annotations={"talos.dev/owned-labels": '["own"]'},
    )
    config = stated(
        labels={"nvidia.com/mig.config": "all-1g.18gb", "own": "new", "zone": "a"}, annotations={"disks": "[]"}
    )
    patch, lines = correction(held, config)
    assert patch == {"metadata": {"resourceVersion": "7", "labels": {"nvidia.com/mig.config": "all-1g.18gb"}}}
    assert lines == ["setting label nvidia.com/mig.config, which another writer set"]
    assert missing(held, config) == [
        "label nvidia.com/mig.config=all-1g.18gb (it has 'all-disabled')",
        "label own=new (it has 'old')",
        "label zone=a",
        "annotation disks",
    ]
