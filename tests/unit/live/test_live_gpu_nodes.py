"""The check of what nodes with GPUs offer: what it states of one that does not, and which machines it asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sitectl.live import gpu_evidence
from stacks.plan.cluster import PlannedNode
from stacks.plan.site_plan import plan_file
from tests import gpu_nodes_seen as seen_nodes
from tests.live import test_live_machines as machines
from tests.live.running import Object, RunningSite

pytestmark = pytest.mark.row("000.12", "002.11")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
NAMES = tuple(node.name for node in gpu_evidence.machines_to_ask(PROD))


@dataclass(frozen=True, kw_only=True)
class Recorded(RunningSite):
    """A site of which a test gives what its API server has: end of the path -> objects."""

    lists: dict[str, list[Object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def items(self, path: str, **_: str) -> list[Object]:
        return self.lists[path.rpartition("/")[2]]

    @contextmanager
    def machine(self, node: PlannedNode) -> Iterator[Any]:
        self.asked.append(node.name)
        yield None


def site(talosconfig: str = "", **changed: Object) -> Recorded:
    """The reference site; changed: nodes that are not as they should be."""
    nodes = {name: seen_nodes.node(name) for name in NAMES} | {
        name.replace("_", "-"): changed[name] for name in changed
    }
    pods = [pod for name in NAMES for pod in (seen_nodes.validator(), seen_nodes.plugin()) for pod in [on(pod, name)]]
    lists = {"nodes": list(nodes.values()), "pods": pods, "runtimeclasses": [{"metadata": {"name": "nvidia"}}]}
    return Recorded(name="prod", plan=PROD, endpoint="", keys={}, kubeconfig={}, lists=lists, talosconfig=talosconfig)


def on(pod: Object, node: str) -> Object:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def unseen(_: str) -> None:
    """No evidence."""


check = machines.test_gpu_nodes_offer_all_their_gpus


def test_nodes_that_offer_all_pass() -> None:
    check(site(), unseen)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            seen_nodes.node("hgx-1", allocatable=7),
            "hgx-1 offers 7 of 8 GPUs, gpus-unhealthy: 7 of 8 nvidia.com/gpu allocatable, capacity 8",
        ),
        (
            seen_nodes.node("hgx-1", labels={}),
            "hgx-1 offers 0 of 8 GPUs, not-labelled: no label nvidia.com/gpu.family",
        ),
        (seen_nodes.node("hgx-1", ready="Unknown"), "hgx-1 is node-away: Ready is Unknown"),
    ],
)
def test_a_node_that_does_not_is_named_with_its_state(node: Object, reason: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(site(hgx_1=node), unseen)
    assert str(caught.value).startswith(reason)


def test_machines_are_asked_where_the_program_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROD.machines is not None
    (hgx, *_) = [node for node in PROD.machines.nodes if node.name == NAMES[0]]
    pins, talos = PROD.versions.nvidia.lts, PROD.versions.talos
    there = {name.removeprefix("siderolabs/"): pins.fabric_manager for name in hgx.schematic.extensions}
    there = {name: f"{pins.driver}-{talos}" if "kmod" in name else version for name, version in there.items()}
    bare = replace(seen_nodes.MACHINE, extensions=there, modules=frozenset(), driver="")
    monkeypatch.setattr(gpu_evidence, "look", lambda _: bare)
    made = site(talosconfig="is there")
    with pytest.raises(AssertionError, match="hgx-1 is modules-not-loaded: not loaded: nvidia, nvidia_uvm"):
        check(made, unseen)
    assert sorted(made.asked) == sorted(NAMES)
    plain = site()
    check(plain, unseen)
    assert plain.asked == []
