"""The endpoint picker: its scorers and filter, what it sheds, and that affinity beats taking replicas in turn."""

from __future__ import annotations

import pytest

from stacks.proof.demand import Load, Spread
from stacks.whatif.lengths import seeded
from stacks.whatif.picker import EndpointPicker, Metrics, Picking, PickingPlan
from stacks.whatif.simulation import Simulation
from stacks.whatif.tally import Counts, quantile, together
from stacks.whatif.traffic import Arrival, PromptPart, Traffic
from tests.unit.whatif.workloads import served

pytestmark = pytest.mark.row("opening 12", "000.24", "000.26", "000.27")

PLAN = PickingPlan(queue_threshold=5, kv_threshold=0.9, shedding_threshold=5)
TALK = (PromptPart(1, 1000, 0),)
NEXT = (PromptPart(1, 1200, 1000),)


def picker(plan: PickingPlan = PLAN, replicas: int = 3) -> EndpointPicker:
    return EndpointPicker(plan, replicas, seeded("1", "ways"))


def chosen(picks: EndpointPicker, parts: tuple[PromptPart, ...], prompt: int, *, replicas: int = 3) -> int:
    """Where it sends a prompt while every replica answers."""
    return picks.pick(Arrival(0.0, 0, prompt, 1, parts), range(replicas), range(replicas))


def test_the_next_prompt_goes_where_the_first_one_was() -> None:
    picks = picker()
    first = chosen(picks, TALK, 1000)
    assert [chosen(picks, NEXT, 1200) for _ in range(5)] == [first] * 5


def test_a_queue_beyond_the_threshold_sends_it_elsewhere_and_a_shorter_one_does_not() -> None:
    """At weights 3, 2 and 2 a whole prefix is worth more than the longest queue that is let through."""
    picks = picker()
    first = chosen(picks, TALK, 1000)
    for waiting, same in ((4, True), (5, False)):
        busy = picker()
        busy.learn(first, TALK)
        busy.read({place: Metrics(waiting if place == first else 0, 0.1) for place in range(3)}, 0.0)
        assert (chosen(busy, NEXT, 1010) == first) is same


def test_a_full_cache_sends_it_elsewhere() -> None:
    picks = picker()
    picks.learn(0, TALK)
    picks.read({0: Metrics(0, 0.95), 1: Metrics(0, 0.1), 2: Metrics(0, 0.1)}, 0.0)
    assert chosen(picks, NEXT, 1010) != 0


def test_where_all_are_beyond_the_thresholds_none_is_left_out() -> None:
    picks = picker()
    picks.learn(2, TALK)
    picks.read(dict.fromkeys(range(3), Metrics(9, 0.95)), 0.0)
    assert chosen(picks, NEXT, 1010) == 2


# The endpoint picker's own cases (gateway-api-inference-extension, utilization/detector_test.go at c86af76): thresholds
# of 5 requests and 0.9; saturation of replicas given as (waiting, share of the cache).
SATURATION = [
    ([(2, 0.5)], 0.5 / 0.9),
    ([(10, 0.1)], 2.0),
    ([(1, 0.95)], 0.95 / 0.9),
    ([(1, 0.1), (0, 0.2)], (0.2 + 0.2 / 0.9) / 2),
    ([(1, 0.1), (15, 0.2)], 1.6),
    ([(5, 0.1)], 1.0),
]


@pytest.mark.parametrize(("replicas", "saturation"), SATURATION)
def test_it_is_saturated_as_the_real_one(replicas: list[tuple[int, float]], saturation: float) -> None:
    picks = picker(replicas=len(replicas))
    picks.read({place: Metrics(*figures) for place, figures in enumerate(replicas)}, 0.0)
    assert picks.saturated(range(len(replicas))) == (saturation >= 1)


def test_without_replicas_it_is_saturated_and_a_silent_one_counts_as_full() -> None:
    """The last two of the same cases: one good and one stale, and three that are stale, queued and full."""
    assert picker().saturated([])
    picks = picker()
    picks.read({1: Metrics(1, 0.1), 2: Metrics(1, 0.1)}, 0.0)
    assert not picks.saturated([1], silent=1)
    picks.read({1: Metrics(20, 0.2), 2: Metrics(1, 0.99)}, 0.0)
    assert picks.saturated([1, 2], silent=1)
    # 1.2 and 1 of two.
    picks.read({1: Metrics(6, 0.2)}, 0.0)
    assert picks.saturated([1], silent=1)


def test_a_silent_replica_is_chosen_where_all_others_are_full() -> None:
    """As the real filter, which lets all through rather than none: its last metrics look idle."""
    picks = picker(replicas=2)
    picks.read({0: Metrics(0, 0.1), 1: Metrics(2, 0.1)}, 0.0)
    assert picks.pick(Arrival(0.0, 0, 1000, 1, TALK), [0, 1], [1]) == 1
    picks.read({1: Metrics(9, 0.95)}, 0.0)
    assert picks.pick(Arrival(0.0, 0, 100, 1, (PromptPart(9, 100, 0),)), [0, 1], [1]) == 0


@pytest.mark.parametrize(("index_tokens", "place"), [(2000, 0), (1500, 1)])
def test_it_forgets_what_it_cannot_remember(index_tokens: int, place: int) -> None:
    """A prefix is worth more than a shorter queue, as long as the picker knows of it."""
    picks = picker(PickingPlan(index_tokens=index_tokens), replicas=2)
    picks.learn(0, TALK)
    picks.learn(0, (PromptPart(2, 1000, 0),))
    picks.read({0: Metrics(1, 0.0), 1: Metrics(0, 0.0)}, 0.0)
    assert chosen(picks, NEXT, 1200, replicas=2) == place


def long_talks(picking: Picking, pickers: int = 1) -> Counts:
    """Conversations on four replicas, each of whose caches holds a third of them."""
    load = Load(requests_per_s=8.0, prompt_tokens=Spread(4000, 12_000), answer_tokens=Spread(100, 200), prefix_hit=0.8)
    model = served(
        step_s=0.01,
        prompt_token_s=1e-4,
        slots=64,
        batched=8192,
        replicas=4,
        cache=600_000,
        picking=PickingPlan(picking=picking, pickers=pickers, queue_threshold=20),
    )
    run = Simulation(model, Traffic(load, context=40_000, seed="1"), seed="1", borders_s=(60,)).run(600)
    return together(run.tally.counts[1])


@pytest.mark.slow
def test_affinity_beats_turns_and_a_second_picker_costs_some_of_it() -> None:
    picked, shared, in_turn = long_talks("picker"), long_talks("picker", 2), long_talks("in turn")
    hits = [counts.cached_tokens / counts.prompt_tokens for counts in (picked, shared, in_turn)]
    assert hits == sorted(hits, reverse=True)
    assert hits[0] > 1.5 * hits[2]
    waits = [quantile(counts.first_s, 0.95) for counts in (picked, shared, in_turn)]
    assert waits == sorted(waits)
    assert waits[2] > 1.5 * waits[0]
