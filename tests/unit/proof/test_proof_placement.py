"""All models on one site's GPUs: whole nodes, fragments, a lost node, room to roll out."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from components.specs.model_server import PodPriority
from stacks.plan.placement import Demand, Node, Placement, fits, place, whole_nodes

pytestmark = pytest.mark.row("opening 1", "002.12")

H200 = [Node(name=f"hgx-{number}", gpu="h200-sxm", gpus=8) for number in (1, 2, 3)]
GLM = Demand(model="glm", gpu="h200-sxm", gpus=8, replicas=2)
QWEN = Demand(model="qwen", gpu="h200-sxm", gpus=1, replicas=4)


def used(placement: Placement) -> dict[str, int]:
    gpus_by_node: dict[str, int] = {}
    for replica in placement.replicas:
        for name in replica.nodes:
            gpus_by_node[name] = gpus_by_node.get(name, 0) + replica.gpus_per_node
    return gpus_by_node


def test_whole_nodes_go_first_and_small_replicas_fill_the_rest() -> None:
    placement = place(H200, [QWEN, GLM])
    assert placement.fits
    assert fits(H200, [QWEN, GLM])
    assert sorted(placement.free.values()) == [0, 0, 4]
    assert placement.surge == {"glm": False, "qwen": True}


def test_replicas_of_a_model_are_apart() -> None:
    placement = place(H200, [Demand(model="qwen", gpu="h200-sxm", gpus=2, replicas=3)])
    assert sorted(replica.nodes for replica in placement.replicas) == [("hgx-1",), ("hgx-2",), ("hgx-3",)]


def test_fragments_are_filled_before_a_free_node_is_broken() -> None:
    four_gpus = Demand(model="a", gpu="h200-sxm", gpus=4, replicas=1)
    two = Demand(model="b", gpu="h200-sxm", gpus=2, replicas=1)
    placement = place(H200, [four_gpus, two])
    assert sorted(placement.free.values()) == [2, 8, 8]


def test_enough_gpus_in_pieces_are_not_enough_for_a_whole_node() -> None:
    spread = Demand(model="spread", gpu="h200-sxm", gpus=1, replicas=3)
    placement = place(H200, [spread, Demand(model="glm", gpu="h200-sxm", gpus=8, replicas=3)])
    assert not placement.fits
    assert placement.missing_nodes == {"h200-sxm": 1}
    assert [(demand.model, demand.replicas) for demand in placement.unplaced] == [("spread", 3)]


def test_the_nodes_that_are_missing_make_it_fit() -> None:
    wanted = [GLM, Demand(model="big", gpu="h200-sxm", gpus=8, replicas=4), QWEN]
    placement = place(H200, wanted)
    more = [Node(name=f"new-{number}", gpu="h200-sxm", gpus=8) for number in range(placement.missing_nodes["h200-sxm"])]
    assert len(more) == 4
    assert place([*H200, *more], wanted).fits
    assert not place([*H200, *more[1:]], wanted).fits


def test_a_replica_larger_than_a_node_takes_whole_nodes() -> None:
    pair = Demand(model="pair", gpu="h200-sxm", gpus=16, replicas=1)
    placement = place(H200, [pair, QWEN])
    assert placement.replicas[0].nodes == ("hgx-1", "hgx-2")
    assert placement.replicas[0].gpus_per_node == 8
    assert not place(H200, [Demand(model="odd", gpu="h200-sxm", gpus=12, replicas=1)]).fits


def test_gpus_of_another_kind_are_no_room() -> None:
    placement = place(H200, [Demand(model="fp4", gpu="b200", gpus=4, replicas=1)])
    assert placement.missing_nodes == {}
    assert not fits(H200, [Demand(model="fp4", gpu="b200", gpus=4, replicas=1)])


@pytest.mark.parametrize(
    ("nodes", "demands", "verdicts"),
    [
        # Two replicas on two of three nodes: the third takes either over.
        (3, [GLM], ["recovers", "recovers", "spare"]),
        # Without a third node one replica is left.
        (2, [GLM], ["degraded", "degraded"]),
        # A single replica without room elsewhere is an outage.
        (1, [Demand(model="glm", gpu="h200-sxm", gpus=8, replicas=1)], ["down"]),
        # The small replicas are on one node and the large one on the other, and neither node takes both.
        (2, [Demand(model="glm", gpu="h200-sxm", gpus=8, replicas=1), QWEN], ["down", "down"]),
    ],
)
def test_a_lost_node(nodes: int, demands: list[Demand], verdicts: list[str]) -> None:
    placement = place(H200[:nodes], demands)
    assert [loss.verdict for loss in placement.losses] == verdicts
    assert placement.survives_a_node == ("down" not in verdicts)


def test_half_of_a_pair_takes_the_replica_with_it() -> None:
    placement = place(H200[:2], [Demand(model="pair", gpu="h200-sxm", gpus=16, replicas=1)])
    assert [(loss.verdict, loss.models) for loss in placement.losses] == [("down", ("pair",)), ("down", ("pair",))]


def test_the_number_of_replicas_that_a_lost_node_takes_is_said() -> None:
    placement = place(H200[:2], [Demand(model="qwen", gpu="h200-sxm", gpus=4, replicas=4)])
    assert [(loss.verdict, loss.missing) for loss in placement.losses] == [("degraded", (("qwen", 2),))] * 2


def test_small_replicas_that_start_first_leave_whole_nodes_to_large_ones() -> None:
    """They take the nodes of large ones last, in whatever order all start."""
    nodes = [*H200, Node(name="hgx-4", gpu="h200-sxm", gpus=8)]
    placement = place(nodes, [GLM, QWEN])
    assert placement.whole == ("hgx-1", "hgx-2")
    assert whole_nodes(nodes, [GLM, QWEN]) == set(placement.whole)
    assert (placement.crowded, placement.uncrowded_nodes) == ((), {})
    assert place(nodes, [QWEN]).whole == ()


FIRST = PodPriority(value=100, preempts=True)
WAITING = PodPriority(value=100, preempts=False)
FOUR = [*H200, Node(name="hgx-4", gpu="h200-sxm", gpus=8)]


Lost = tuple[str, dict[str, int], dict[str, int]]


def lost(nodes: list[Node], glm: PodPriority, *, small: int = 4) -> dict[str, Lost]:
    """By lost node: verdict, replicas that are missing, replicas that made room."""
    placement = place(nodes, [replace(GLM, priority=glm), replace(QWEN, replicas=small)])
    return {loss.node: (loss.verdict, dict(loss.missing), dict(loss.moved)) for loss in placement.losses}


def test_a_large_replica_takes_a_node_whose_small_ones_have_room_elsewhere() -> None:
    """4 small ones on hgx-3 and hgx-4, two on each: two of them make room on one, and the other has 6 GPUs left."""
    one_less: Lost = ("degraded", {"glm": 1}, {})
    assert lost(FOUR, WAITING) == dict.fromkeys(("hgx-1", "hgx-2"), one_less) | {
        name: ("recovers", {}, {}) for name in ("hgx-3", "hgx-4")
    }
    moved = lost(FOUR, FIRST)
    assert moved["hgx-1"] == moved["hgx-2"] == ("recovers", {}, {"qwen": 2})
    assert moved["hgx-3"] == moved["hgx-4"] == ("recovers", {}, {})


def test_replicas_that_make_room_and_find_none_are_missing_themselves() -> None:
    """12 small ones of 16 GPUs: 6 make room, of which 2 fit on the other node. Three nodes have no other."""
    assert lost(FOUR, FIRST, small=12)["hgx-1"] == ("degraded", {"qwen": 4}, {"qwen": 6})
    assert lost(H200, FIRST)["hgx-1"] == ("down", {"qwen": 4}, {"qwen": 4})
    assert lost(H200, WAITING)["hgx-1"] == ("degraded", {"glm": 1}, {})


def test_what_is_out_meanwhile_was_there_or_made_room() -> None:
    placement = place(FOUR, [replace(GLM, priority=FIRST), replace(QWEN, replicas=12)])
    out = {loss.node: dict(loss.out) for loss in placement.losses}
    assert out == {
        "hgx-1": {"glm": 1, "qwen": 6},
        "hgx-2": {"glm": 1, "qwen": 6},
        "hgx-3": {"qwen": 6},
        "hgx-4": {"qwen": 6},
    }


def test_two_nodes_of_a_replica_are_whole() -> None:
    assert place(H200, [Demand(model="big", gpu="h200-sxm", gpus=16, replicas=1)]).whole == ("hgx-1", "hgx-2")


def test_small_replicas_that_start_first_can_crowd_out_ones_of_half_a_node() -> None:
    """A scheduler that spreads leaves too little on each node; more nodes make that harmless."""
    half = Demand(model="half", gpu="h200-sxm", gpus=4, replicas=3)
    placement = place(H200[:2], [half, QWEN])
    assert placement.fits
    assert placement.whole == ()
    assert (placement.crowded, placement.uncrowded_nodes) == (("half",), {"h200-sxm": 1})
    assert place(H200, [half, QWEN]).crowded == ()


def test_what_finds_no_other_room_takes_a_whole_node_all_the_same() -> None:
    """It is a preference: a half that finds no room beside spread small ones is not kept waiting."""
    half = Demand(model="half", gpu="h200-sxm", gpus=4, replicas=3)
    whole = Demand(model="whole", gpu="h200-sxm", gpus=8, replicas=1)
    placement = place(H200, [whole, half, QWEN])
    assert placement.whole == ("hgx-1",)
    assert (placement.crowded, placement.uncrowded_nodes) == (("whole",), {"h200-sxm": 1})


def test_a_site_that_is_far_too_small_is_answered_soon() -> None:
    """Above 256 nodes the search does not try each number: a million replicas are a typo."""
    placement = place(H200, [Demand(model="glm", gpu="h200-sxm", gpus=8, replicas=1_000_000)])
    assert placement.missing_nodes == {"h200-sxm": 999_997}
    assert len(placement.replicas) == 3


def test_names_are_given_once() -> None:
    with pytest.raises(ValueError, match="given twice: hgx-1"):
        place([H200[0], H200[0]], [])
    with pytest.raises(ValueError, match="given twice: qwen"):
        place(H200, [QWEN, QWEN])


def test_order_of_nodes_and_demands_does_not_matter() -> None:
    demands = [GLM, QWEN, Demand(model="x", gpu="h200-sxm", gpus=2, replicas=1)]
    results = {
        tuple(
            sorted(
                (replica.model, replica.number, replica.nodes) for replica in place(list(nodes), list(wanted)).replicas
            )
        )
        for nodes in itertools.permutations(H200)
        for wanted in itertools.permutations(demands)
    }
    assert len(results) == 1


def test_random_sites_are_never_overbooked() -> None:
    """200 sites: no node gives more than it has, replicas are whole, and more nodes never place less."""
    chance = random.Random(7)  # noqa: S311
    for _ in range(200):
        nodes = [Node(name=f"n{number}", gpu=chance.choice(["a", "b"]), gpus=8) for number in range(6)]
        demands = [
            Demand(
                model=f"m{number}",
                gpu=chance.choice(["a", "b"]),
                gpus=chance.choice([1, 2, 4, 8]),
                replicas=chance.randint(1, 4),
            )
            for number in range(5)
        ]
        placement = place(nodes, demands)
        taken = used(placement)
        for node in nodes:
            assert taken.get(node.name, 0) + placement.free[node.name] == node.gpus
            assert placement.free[node.name] >= 0
        missing = sum(demand.replicas for demand in placement.unplaced)
        assert len(placement.replicas) + missing == sum(demand.replicas for demand in demands)
        grown = place([*nodes, Node(name="more", gpu="a", gpus=8)], demands)
        assert len(grown.replicas) >= len(placement.replicas)
