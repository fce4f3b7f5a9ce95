"""Which node the watcher takes out, and which new one it lets in: every rule as a case, and a long run of faults."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from services.watcher.decision import (
    Act,
    Admit,
    Drain,
    Evict,
    Exercise,
    Inspect,
    LastDrain,
    LoadSeen,
    Mark,
    NodeSeen,
    ReplicaSeen,
    Seen,
    Suspect,
    agreeing,
    decide,
    held,
    unfit,
)
from services.watcher.settings import NodeOffer, WatcherSettings
from services.watcher.variables import AGREE_S, APART_S, MISSING

pytestmark = pytest.mark.row("opening 25", "002.12")

GPU, XID = "nvidia.com/gpu", "xid-79"
NAMES = ("hgx-1", "hgx-2", "hgx-3")
NOW = 1_000_000.0
SETTINGS = WatcherSettings(
    prometheus="",
    nodes={name: NodeOffer(resource=GPU, count=8, gpus=8) for name in NAMES},
    may_lose=frozenset({"hgx-1", "hgx-2"}),
    faults="",
    measured="",
    joining="",
    meanings={},
    namespace="models",
    replicas="",
    drains=True,
    checks=False,
    load_tests=None,
    validator=None,
)
WELL = NodeSeen(allocatable={GPU: 8})
SHORT = replace(WELL, allocatable={GPU: 7})
CRASHED = replace(WELL, replicas=(ReplicaSeen(name="chat-a", ready=False, restarted=True),))
ALL_MEASURED = dict.fromkeys(NAMES, 8)


def seen(nodes: Mapping[str, NodeSeen | None] | None = None, **more: Any) -> Seen:
    """Three nodes that are well, with these changes; hgx-1 has lost a GPU, and both sources report it."""
    there = {**dict.fromkeys(NAMES, WELL), "hgx-1": SHORT, **(nodes or {})}
    given: dict[str, Any] = {"faults": {"hgx-1": [XID]}, "measured": ALL_MEASURED, **more}
    return Seen(nodes={name: node for name, node in there.items() if node is not None}, **given)


def acts(world: Seen, settings: WatcherSettings = SETTINGS, *, for_s: float = AGREE_S) -> list[Act]:
    """What is done about sources that have agreed for so long."""
    return decide(world, settings, dict.fromkeys(agreeing(world, settings), for_s), NOW)


def drained(world: Seen, settings: WatcherSettings = SETTINGS, *, for_s: float = AGREE_S) -> list[str]:
    return [act.node for act in acts(world, settings, for_s=for_s) if isinstance(act, Drain)]


def test_a_node_is_drained_that_both_sources_report_for_a_while() -> None:
    drain = Drain(node="hgx-1", codes=[XID], why=f"it offers 7 of 8 {GPU}")
    assert acts(seen()) == [drain]
    assert drained(seen({"hgx-1": CRASHED})) == ["hgx-1"]
    assert drained(seen(), for_s=AGREE_S - 1) == []
    # A GPU that is gone from the bus is gone from DCGM too, and its Xid with it.
    gone = seen(faults={}, measured={**ALL_MEASURED, "hgx-1": 7})
    assert [(act.codes, act.node) for act in acts(gone) if isinstance(act, Drain)] == [([MISSING], "hgx-1")]


@pytest.mark.parametrize(
    "world",
    [
        seen(faults={}),
        seen({"hgx-1": WELL}),
        # It loads, or ends, or was well again.
        seen({"hgx-1": replace(WELL, replicas=(ReplicaSeen(name="a", ready=False),))}),
        seen({"hgx-1": replace(WELL, replicas=(ReplicaSeen(name="a", ready=True, restarted=True),))}),
        # An exporter that is away is no missing GPU.
        seen(faults={}, measured={}),
        # A replica that fails on another node is no witness.
        seen({"hgx-1": WELL, "hgx-2": CRASHED}),
        # Nothing is known of it, or an operator works on it.
        seen({"hgx-1": replace(SHORT, ready=False)}),
        seen({"hgx-1": replace(SHORT, cordoned=True)}),
        seen(faults={"hgx-9": [XID]}),
    ],
)
def test_one_source_alone_drains_nothing(world: Seen) -> None:
    assert drained(world) == []


def test_one_source_alone_is_marked_once_and_the_mark_goes_with_it() -> None:
    fault_alone, offers_alone = seen({"hgx-1": WELL}), seen(faults={})
    for world, source in ((fault_alone, "the cluster has nothing"), (offers_alone, "DCGM reports no fault")):
        (mark,) = acts(world)
        assert isinstance(mark, Suspect)
        assert source in mark.text
        assert acts(seen({"hgx-1": replace(world.nodes["hgx-1"], suspect=mark.text)}, faults=world.faults)) == []
    assert acts(seen({"hgx-1": replace(WELL, suspect="before")}, faults={})) == [Suspect(node="hgx-1", text="")]


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (seen({"hgx-3": replace(WELL, taint="xid-48", marked=["xid-48"])}), "another node is out"),
        (seen({"hgx-3": replace(WELL, ready=False)}), "another node is out"),
        (seen({"hgx-3": replace(WELL, cordoned=True)}), "another node is out"),
        (seen({"hgx-3": replace(WELL, checking=True)}), "another node is out"),
        (seen({"hgx-3": None}), "another node is out"),
        # As where the device plugins of all nodes restart.
        (seen({"hgx-3": SHORT}), "another node is out"),
        (seen({"hgx-3": CRASHED}), "another node is out"),
        (seen({"hgx-1": WELL, "hgx-3": SHORT}, faults={"hgx-3": [XID]}), "the rest cannot carry it"),
        (seen(last=LastDrain(node="hgx-2", at=NOW - APART_S + 1)), "one node an hour"),
        # It was out itself, and came back.
        (
            seen({"hgx-1": replace(SHORT, since=NOW - 60)}, last=LastDrain(node="hgx-1", at=NOW - 59.5)),
            "one node an hour",
        ),
    ],
)
def test_a_node_stays_in_service_and_is_marked_with_the_reason(world: Seen, reason: str) -> None:
    assert drained(world) == []
    (marked,) = [act for act in acts(world) if isinstance(act, Suspect) and "not drained" in act.text]
    assert marked.text.endswith(reason)
    assert held(marked.node, world, SETTINGS, NOW) == reason


def test_of_two_faulty_nodes_one_is_drained_and_the_other_waits() -> None:
    faults = {"hgx-1": [XID], "hgx-2": [XID]}
    assert drained(seen(faults=faults)) == ["hgx-1"]
    out = replace(SHORT, taint=XID, marked=[XID])
    assert drained(seen({"hgx-1": out, "hgx-2": SHORT}, faults=faults)) == []
    # The first one is back, and was acknowledged.
    back = {"hgx-1": replace(WELL, marked=[XID]), "hgx-2": SHORT}
    assert drained(seen(back, faults=faults, last=LastDrain(node="hgx-1", at=NOW - APART_S + 1))) == []
    assert drained(seen(back, faults=faults, last=LastDrain(node="hgx-1", at=NOW - APART_S))) == ["hgx-2"]


def test_replicas_leave_a_node_that_is_out_and_a_restart_goes_on_where_it_was() -> None:
    replicas = [
        ReplicaSeen(name="b", ready=True),
        ReplicaSeen(name="a", ready=True),
        ReplicaSeen(name="c", ready=False),
    ]
    leaving = ReplicaSeen(name="d", ready=True, ending=True)
    out = replace(SHORT, taint=XID, marked=[XID], replicas=(*replicas, leaving))
    # A watcher that has just started knows of no agreement.
    assert decide(seen({"hgx-1": out}), SETTINGS, {}, NOW) == [Evict(node="hgx-1", replicas=["c", "a", "b"])]
    # It ended between the Lease and the taint.
    assert drained(seen(last=LastDrain(node="hgx-1", at=NOW - 60))) == ["hgx-1"]
    before = replace(SHORT, since=NOW - 61)
    assert drained(seen({"hgx-1": before}, last=LastDrain(node="hgx-1", at=NOW - 60))) == ["hgx-1"]
    # A fault that ends lets no node in again: that is the operator's.
    ended = replace(WELL, taint=XID, marked=[XID])
    assert acts(seen({"hgx-1": ended}, faults={})) == []


def test_an_acknowledged_fault_counts_again_once_it_was_gone() -> None:
    """An operator who removes the taint acknowledges: DCGM's exporter shows the last Xid until it restarts."""
    back = replace(SHORT, marked=[XID])
    assert drained(seen({"hgx-1": back})) == []
    assert drained(seen({"hgx-1": back}, faults={"hgx-1": ["xid-48", XID]})) == ["hgx-1"]
    well = replace(WELL, marked=[XID])
    assert acts(seen({"hgx-1": well})) == []
    # While the exporter is away, nothing is known of the fault.
    assert acts(seen({"hgx-1": well}, faults={}, measured={})) == []
    assert acts(seen({"hgx-1": well}, faults={})) == [Mark(node="hgx-1", codes=[])]


def test_all_faults_of_a_node_that_is_out_are_acknowledged_with_its_taint() -> None:
    both = {"hgx-1": [XID, "xid-48"]}
    (drain,) = acts(seen(faults=both))
    assert drain == Drain(node="hgx-1", codes=both["hgx-1"], why=f"it offers 7 of 8 {GPU}")
    # One that comes while it is out, too.
    out = replace(SHORT, taint=XID, marked=[XID])
    assert acts(seen({"hgx-1": out}, faults=both)) == [Mark(node="hgx-1", codes=both["hgx-1"])]
    back = replace(SHORT, marked=both["hgx-1"])
    assert drained(seen({"hgx-1": back}, faults=both)) == []
    assert Mark(node="hgx-1", codes=["xid-48"]) in acts(seen({"hgx-1": back}, faults={"hgx-1": ["xid-48"]}))


def test_a_site_that_wants_alerts_alone_gets_marks_alone() -> None:
    assert {type(act) for act in acts(seen(), replace(SETTINGS, drains=False))} == {Suspect}


def test_a_new_node_takes_replicas_once_its_gpus_are_well() -> None:
    settings = replace(SETTINGS, drains=False, checks=True)
    others = dict.fromkeys(("hgx-2", "hgx-3"), replace(WELL, checked=True))
    new, checking = replace(WELL, allocatable={}), replace(WELL, checking=True)

    def of(node: NodeSeen, **more: Any) -> list[Act]:
        marks = acts(seen({**others, "hgx-1": node}, **{"faults": {}, **more}), settings)
        return [act for act in marks if isinstance(act, Inspect | Admit)]

    assert of(new) == [Inspect(node="hgx-1")]
    # A site that serves already keeps its nodes.
    assert of(replace(WELL, replicas=(ReplicaSeen(name="a", ready=True),))) == [Admit(node="hgx-1")]
    assert of(CRASHED) == [Inspect(node="hgx-1")]
    assert of(checking) == [Admit(node="hgx-1")]
    assert of(replace(WELL, checked=True)) == []
    for waiting in (
        of(replace(checking, ready=False)),
        of(replace(checking, allocatable={GPU: 7})),
        of(replace(checking, validated=False)),
        of(checking, measured={}),
        of(checking, measured={"hgx-1": 7}),
        of(checking, joining={"hgx-1": 8}),
        of(checking, faults={"hgx-1": [XID]}),
    ):
        assert waiting == []


def test_a_new_node_whose_gpus_are_well_is_admitted_by_its_load_test() -> None:
    offers = {**SETTINGS.nodes, "hgx-1": replace(SETTINGS.nodes["hgx-1"], load_test="h200-8")}
    settings = replace(SETTINGS, nodes=offers, drains=False, checks=True)
    tested, fault = replace(WELL, checking=True, load_test="h200-8"), {"hgx-1": [XID]}

    def of(node: NodeSeen, faults: Mapping[str, Any] = {}) -> tuple[list[Act], str]:
        world = seen({"hgx-1": node, "hgx-2": None, "hgx-3": None}, faults=faults)
        return [act for act in acts(world, settings) if isinstance(act, Exercise | Admit)], unfit(
            "hgx-1", world, settings
        )

    assert of(replace(WELL, checking=True), fault) == ([], XID)
    assert of(replace(WELL, checking=True))[0] == [Exercise(node="hgx-1", name="h200-8")]
    assert of(tested) == ([], "its load test runs")
    # It is run again, and what was wrong last is shown meanwhile.
    failed = LoadSeen(text="GPU 3: 9 GB/s")
    assert of(replace(tested, load=failed)) == ([], "its load test fails: GPU 3: 9 GB/s")
    passed = replace(tested, load=LoadSeen(passed=True, text="8 GPUs: enough"))
    assert of(passed, fault) == ([], XID)
    assert of(passed) == ([Admit(node="hgx-1", reached="8 GPUs: enough")], "")
    # An operator has let it in meanwhile: the test's pod must not keep the GPUs.
    assert of(replace(tested, checking=False, checked=True))[0] == [Exercise(node="hgx-1", name="")]
    # A replica that loads when the node is first seen has the GPUs that its test would wait for.
    serving = replace(tested, replicas=(ReplicaSeen(name="a", ready=True),))
    assert of(serving) == ([Admit(node="hgx-1")], "")
    # By another test, as one of a node that had other GPUs.
    assert of(replace(passed, load_test="h100-8"))[0] == [Exercise(node="hgx-1", name="h200-8")]


@pytest.mark.slow
def test_a_hundred_days_of_faults_never_take_two_nodes_or_two_within_an_hour() -> None:
    """Faults, lost marks and operators at random, and a watcher that forgets at any time what only it knows."""
    chance = random.Random(25)  # noqa: S311 - no secret
    nodes, last, drains = dict.fromkeys(NAMES, WELL), None, list[tuple[float, str]]()
    faults: dict[str, list[str]] = {}
    since: dict[str, float] = {}
    now = NOW
    for _ in range(100_000):
        now += chance.choice((15, 60, 240))
        name = chance.choice(NAMES)
        match chance.randrange(40):
            case 0:
                faults[name] = [chance.choice((XID, "xid-48"))]
            case 1:
                faults.pop(name, None)
            case 2:
                nodes[name] = replace(nodes[name], allocatable={GPU: chance.choice((7, 8))})
            case 3:
                nodes[name] = replace(nodes[name], taint="", cordoned=chance.random() < 0.1)
            case 4:
                since = {}
        world = Seen(nodes=nodes, faults=faults, measured=ALL_MEASURED, last=last)
        since = {node: since.get(node, now) for node in agreeing(world, SETTINGS)}
        for act in decide(world, SETTINGS, {node: now - at for node, at in since.items()}, now):
            match act:
                case Drain(node=node, codes=codes):
                    assert node in SETTINGS.may_lose
                    others = [nodes[other] for other in NAMES if other != node]
                    assert not any(other.taint or other.cordoned or other.allocatable[GPU] < 8 for other in others)
                    last = LastDrain(node=node, at=now)
                    drains.append((now, node))
                    nodes[node] = replace(nodes[node], taint=codes[0], marked=codes, since=now)
                case Mark(node=node, codes=codes):
                    nodes[node] = replace(nodes[node], marked=codes)
                case Suspect(node=node, text=text):
                    nodes[node] = replace(nodes[node], suspect=text)
    assert all(later - earlier >= APART_S for (earlier, _), (later, _) in pairwise(drains))
    assert {node for _, node in drains} == {"hgx-1", "hgx-2"}
