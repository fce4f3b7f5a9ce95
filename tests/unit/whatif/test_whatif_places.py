"""Adapters that take turns in the simulation: vLLM's rule, the proof's figures, the picker's choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from stacks.proof.adapter_turns import AdapterTurns, asked_shares, turns
from stacks.proof.adapters import Adapter, Adapters
from stacks.proof.demand import Spread
from stacks.whatif.lengths import seeded
from stacks.whatif.outcome import ModelOutcome
from stacks.whatif.picker import EndpointPicker, Metrics, PickingPlan
from stacks.whatif.places import Places, PlacesPlan
from stacks.whatif.scenario import Scenario
from stacks.whatif.simulation import Run, ServedModel, Simulation
from stacks.whatif.tally import quantile
from stacks.whatif.traffic import Arrival
from stacks.whatif.twin import outcome_of
from tests.unit.stacks.test_many_adapters import MODEL, plan
from tests.unit.whatif.workloads import ONE, Plain, served

pytestmark = [pytest.mark.row("003.27"), pytest.mark.simulations]

STEP_S, ANSWER = 0.01, 100
COUNT, ADAPTER = 64, Adapter(rank=16, modules=frozenset({"q_proj"}))


def test_requests_for_adapters_that_run_start_and_others_wait_for_a_place() -> None:
    places = Places(PlacesPlan(places=2, load_s=0.5))
    assert [places.start(adapter) for adapter in (1, 1, 2, None)] == [0.5, 0.0, 0.5, 0.0]
    assert [places.admits(adapter) for adapter in (1, 2, 3, None)] == [True, True, False, True]
    places.end(1)
    assert not places.admits(3), "another request for 1 runs"
    places.end(1)
    places.end(2)
    # 1 is the longest unused, and 2 is still in its place.
    assert [places.start(adapter) for adapter in (3, 2)] == [0.5, 0.0]
    assert places.running == {2, 3}


def test_without_turns_every_request_may_start() -> None:
    places = Places(None)
    assert places.admits(7)
    assert places.start(7) == 0.0
    places.end(7)


def proven(places: int, skew: float) -> AdapterTurns:
    taken = turns(Adapters(loaded=(ADAPTER,) * COUNT, rank=16, places=places, skew=skew))
    assert taken
    return taken


def with_places(places: int, load_s: float = 0.0) -> ServedModel:
    """One scheduler, which would run any number of requests."""
    model = served(step_s=STEP_S, slots=1000)
    return replace(model, rank=replace(model.rank, places=PlacesPlan(places=places, load_s=load_s)))


def simulated(model: ServedModel, rate: float, skew: float, *, until_s: float = 600) -> Run:
    """Short prompts, each for one of many adapters, and answers of a second."""
    shares = tuple(asked_shares(COUNT, skew))
    source = Plain(rate=rate, prompt=ONE, answer=Spread(ANSWER, ANSWER + 0.01), adapters=shares)
    return Simulation(model, source, seed="1").run(until_s)


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_beyond_what_the_proof_lets_run_requests_wait_for_the_answers_of_others(skew: float) -> None:
    """They then start together with all that wait for the same adapter: more are answered than the proof has."""
    taken = proven(8, skew)
    calm, busy = (simulated(with_places(8), times * taken.at_once, skew) for times in (0.5, 1.5))
    waits = [quantile(run.tally.counts[0][0].first_s, 0.5) for run in (calm, busy)]
    assert waits[0] < 3 * STEP_S
    assert waits[1] > ANSWER * STEP_S
    assert busy.tally.counts[0][0].ends["answered"] / busy.lasted_s * ANSWER * STEP_S > 1.4 * taken.at_once


def test_each_request_whose_adapter_lost_its_place_makes_its_step_wait() -> None:
    """Without queues the steps are longer by (rate x misses x copy), as the proof's `adapter_stalls` has it."""
    taken = proven(16, 1.0)
    rate, load_s = 2.0, 0.05
    runs = [simulated(with_places(16, seconds), rate, 1.0, until_s=2000) for seconds in (load_s, 0.0)]
    slow, quick = (run.tally.counts[0][0].answer_token_s for run in runs)
    # A step waits for what others load meanwhile.
    longer = (sum(slow) / len(slow)) / (sum(quick) / len(quick))
    assert longer == pytest.approx(1 / (1 - rate * taken.missed * load_s), rel=0.02)


def test_a_request_passes_others_whose_adapters_have_no_place() -> None:
    @dataclass(frozen=True)
    class Three:
        def earlier(self) -> Sequence[Arrival]:
            return []

        def arrivals(self, until_s: float) -> Iterator[Arrival]:
            for at_s, adapter in ((0.0, 1), (0.1, 2), (0.2, 1)):
                assert at_s < until_s
                yield Arrival(at_s, 0, 1, ANSWER, (), adapter)

    run = Simulation(with_places(1), Three(), seed="1").run(1.0, drain_s=100)
    first, passing, waiting = sorted(run.tally.counts[0][0].first_s)
    assert max(first, passing) < 3 * STEP_S
    assert waiting == pytest.approx(0.2 + ANSWER * STEP_S - 0.1, abs=3 * STEP_S), "until the last request for 1 ended"


def test_the_picker_prefers_replicas_where_the_adapter_runs_then_those_with_a_place() -> None:
    def best(*replicas: Metrics) -> int:
        picks = EndpointPicker(PickingPlan(adapter_weight=3.0, places=2), len(replicas), seeded("1", "ways"))
        picks.read(dict(enumerate(replicas)), 0.0)
        return picks.pick(Arrival(0.0, 0, 1, 1, (), 7), range(len(replicas)), range(len(replicas)))

    def replica(running: set[int], waiting: set[int] | None = None) -> Metrics:
        return Metrics(0, 0.1, frozenset(running), frozenset(waiting or ()))

    ranked = [replica({7}), replica({1}), replica({1, 2}, {7}), replica({1, 2})]
    for better, worse in pairwise(ranked):
        assert best(worse, better) == 1


def test_a_site_with_fewer_places_waits_longer_and_less_where_some_are_asked_more() -> None:
    def first_token_ms(places: int, skew: float = 0.0) -> float:
        outcome: ModelOutcome = outcome_of(plan(40, places, skew), Scenario(spike=8), models=(MODEL,)).models[0]
        return outcome.last.by_tier[0].figures["ttft_p95"].value

    few, skewed, all_of_them = first_token_ms(16), first_token_ms(16, skew=1.5), first_token_ms(40)
    assert few > 1.4 * all_of_them
    assert skewed < few
