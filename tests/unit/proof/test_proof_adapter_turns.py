"""Adapters that take turns on a GPU, held against a simulated cache of places, and by drawing requests."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace
from random import Random

import pytest

from stacks.facts import catalogue
from stacks.proof.adapter_turns import load_s, turns
from stacks.proof.adapters import Adapter, Adapters, adapter_bytes, host_bytes
from stacks.proof.demand import Load, Spread
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("003.27")

QWEN = catalogue.load("qwen3-32b-fp8")


def adapters(count: int, places: int | None, skew: float = 0.0, rank: int = 16) -> Adapters:
    adapter = Adapter(rank=rank, modules=frozenset({"q_proj", "v_proj"}))
    return Adapters(loaded=(adapter,) * count, rank=rank, places=places, skew=skew)


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_requests_that_load_theirs_are_those_of_a_simulated_cache(skew: float) -> None:
    """The least recently used place is taken, as vLLM does (lora/model_manager.py)."""
    taken = turns(adapters(200, 16, skew))
    assert taken
    chance, there = Random(1), OrderedDict[int, None]()  # noqa: S311 - the same requests each time
    misses, count = 0, 40_000
    for wanted in chance.choices(range(200), [(place + 1) ** -skew for place in range(200)], k=count):
        misses += wanted not in there
        there[wanted] = None
        there.move_to_end(wanted)
        if len(there) > 16:
            there.popitem(last=False)
    assert misses / count == pytest.approx(taken.missed, abs=0.01)


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_places_fill_at_as_many_requests_as_are_drawn_for_them(skew: float) -> None:
    taken = turns(adapters(200, 16, skew))
    assert taken
    chance = Random(2)  # noqa: S311
    weights = [(place + 1) ** -skew for place in range(200)]
    drawn = [chance.choices(range(200), weights, k=round(taken.at_once)) for _ in range(400)]
    assert sum(len({*requests}) for requests in drawn) / 400 == pytest.approx(16, rel=0.05)


def test_all_with_a_place_take_no_turns() -> None:
    assert turns(adapters(16, None)) is None
    assert turns(adapters(4, 8)) is None
    assert turns(None) is None


def test_a_node_holds_all_once_for_each_gpu_and_a_gpu_its_places() -> None:
    many = adapters(200, 16)
    assert host_bytes(QWEN, Layout(tensor=2), many) == 2 * 200 / 16 * adapter_bytes(QWEN, Layout(), many)
    size = adapter_bytes(QWEN, Layout(), many) / 16
    # 64 layers of one projection, as the engine runs them, of two matrices.
    assert load_s(QWEN, Layout(), many, 32e9) == pytest.approx(size / 32e9 + 128 * 10e-6)


def test_places_bound_what_replicas_carry() -> None:
    load = Load(requests_per_s=1, prompt_tokens=Spread(1000, 4000), answer_tokens=Spread(250, 1000))
    plain = prove(order("qwen3-32b-fp8", load=load, replicas=4, layout=Layout()))
    few, more = (prove(replace(plain.order, adapters=adapters(200, places))) for places in (8, 32))
    assert few.case.replica.adapted_at_once == math.floor(math.log(1 - 8 / 200) / math.log(1 - 1 / 200)) == 8
    assert few.case.slots > 100, "the engine may run more, of requests that happen to share adapters"
    assert few.serving["capacity"].value < 0.5 * more.serving["capacity"].value
    assert more.serving["capacity"].value < plain.serving["capacity"].value
    crowded = prove(replace(few.order, load=replace(load, requests_per_s=20)))
    assert not crowded.holds
    assert "8 at once per scheduler, as 8 of its 200 adapters have a place" in crowded.ends.doubts[0].text
