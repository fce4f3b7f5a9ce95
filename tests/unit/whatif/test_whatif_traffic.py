"""Requests are as the site declares them: rate, lengths, shares of tiers, and what an earlier prompt had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.proof.demand import Load, Spread
from stacks.whatif.lengths import MOST_TURNS, turns_for
from stacks.whatif.simulation import Simulation
from stacks.whatif.tally import quantile, together
from stacks.whatif.traffic import Arrival, Surge, Traffic
from tests.unit.whatif.workloads import served

pytestmark = pytest.mark.row("opening 12")

LOAD = Load(requests_per_s=20.0, prompt_tokens=Spread(1000, 6000), answer_tokens=Spread(250, 1000), prefix_hit=0.5)
CONTEXT = 40_960


def arrivals(load: Load = LOAD, seconds: float = 2000, surge: Surge | None = None, seed: str = "1") -> list[Arrival]:
    return list(Traffic(load, context=CONTEXT, seed=seed, shares=(0.75, 0.25), surge=surge).arrivals(seconds))


def known_share(load: Load) -> float:
    """Share of the prompts' tokens that the prompt before had."""
    requests = arrivals(load)
    return sum(part.known for request in requests for part in request.parts) / sum(r.prompt for r in requests)


@pytest.mark.parametrize("hit", [0.5, *(pytest.param(hit, marks=pytest.mark.simulations) for hit in (0.0, 0.3, 0.8))])
def test_rate_lengths_and_tiers_are_the_declared_ones(hit: float) -> None:
    """Whatever share is cached: the prompts of a conversation are as long as others."""
    requests = arrivals(replace(LOAD, prefix_hit=hit))
    assert len(requests) / 2000 == pytest.approx(20, rel=0.03)
    prompts, answers = [float(r.prompt) for r in requests], [float(r.answer) for r in requests]
    assert quantile(prompts, 0.5) == pytest.approx(1000, rel=0.06)
    assert quantile(prompts, 0.95) == pytest.approx(6000, rel=0.1)
    assert quantile(answers, 0.5) == pytest.approx(250, rel=0.05)
    assert quantile(answers, 0.95) == pytest.approx(1000, rel=0.08)
    assert sum(r.tier for r in requests) / len(requests) == pytest.approx(0.25, abs=0.02)
    assert all(r.prompt + r.answer <= CONTEXT and r.prompt >= 1 for r in requests)


@pytest.mark.exhaustive
@pytest.mark.parametrize("prompt", [Spread(1000, 6000), Spread(2000, 16_000), Spread(500, 600)])
@pytest.mark.parametrize(
    "hit", [0.5, *(pytest.param(hit, marks=pytest.mark.simulations) for hit in (0.0, 0.1, 0.3, 0.8, 0.95))]
)
def test_the_declared_share_was_in_an_earlier_prompt(hit: float, prompt: Spread) -> None:
    assert known_share(replace(LOAD, prefix_hit=hit, prompt_tokens=prompt)) == pytest.approx(hit, abs=0.03)


def test_a_large_cache_finds_the_declared_share() -> None:
    """One replica whose cache holds everything, filled as it would be at the beginning."""
    source = Traffic(LOAD, context=CONTEXT, seed="1")
    model = served(step_s=0.001, prompt_token_s=1e-6, slots=10_000, cache=10**9)
    counts = together(Simulation(model, source, seed="1").run(300).tally.counts[0])
    assert counts.cached_tokens / counts.prompt_tokens == pytest.approx(0.5, abs=0.04)


def test_a_share_of_everything_is_as_near_as_conversations_get() -> None:
    turns = turns_for(Spread(1000, 6000), 1.0, CONTEXT)
    assert (turns.fewer, turns.more) == (MOST_TURNS, 0.0)
    assert known_share(replace(LOAD, prefix_hit=1.0)) > 0.95


def test_a_surge_is_as_large_and_as_long_as_asked() -> None:
    """And brings conversations of its own, whose first prompts are new to all replicas."""
    surge = Surge(begins_s=200, lasts_s=100, times=10)
    requests = arrivals(seconds=500, surge=surge)
    within = [r for r in requests if 200 <= r.at_s < 300]
    assert len(within) / 100 == pytest.approx(200, rel=0.03)
    for begins, ends in ((0, 200), (300, 500)):
        assert len([r for r in requests if begins <= r.at_s < ends]) / 200 == pytest.approx(20, rel=0.06)
    first = [r for r in within if r.at_s < 220]
    assert sum(r.parts[0].known for r in first) / sum(r.prompt for r in first) < 0.4


@pytest.mark.parametrize("hit", [0.0, 0.5, 0.8])
def test_prompts_of_a_surge_are_as_long_as_declared(hit: float) -> None:
    """However short it is: what it brings is not the beginning of conversations alone."""
    surge = Surge(begins_s=200, lasts_s=30, times=20)
    requests = arrivals(replace(LOAD, prefix_hit=hit), seconds=240, surge=surge)
    within = [float(r.prompt) for r in requests if 200 <= r.at_s < 230]
    assert quantile(within, 0.5) == pytest.approx(1000, rel=0.1)
    assert quantile(within, 0.95) == pytest.approx(6000, rel=0.15)


def test_longer_tails_leave_arrivals_and_the_order_of_lengths() -> None:
    """The same requests, longer: a scenario is compared with the same traffic."""
    usual, long = arrivals(seconds=100), arrivals(replace(LOAD, prompt_tokens=Spread(1000, 12_000)), seconds=100)
    assert [r.at_s for r in usual] == [r.at_s for r in long]
    assert sum(r.prompt for r in long) > 1.3 * sum(r.prompt for r in usual)
