"""The autoscaler of the twin: what it asks for, and what a spike is like with and without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.plan.site_plan import plan_values
from stacks.whatif.scaler import PERIOD_S, Autoscaler, ScaledCounts
from stacks.whatif.scenario import Scenario
from stacks.whatif.twin import outcome_of
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = [pytest.mark.row("001.24", "opening 12"), pytest.mark.simulations]

QWEN = "qwen3-32b"
PLAN = ScaledCounts(
    least=2, most=12, first=2, requests=10, kv_share=0.8, window_s=60, burst_s=30, step_s=60, start_s=100
)


def test_one_more_comes_beyond_a_tenth_and_serves_after_its_start() -> None:
    scaler = Autoscaler(PLAN)
    assert scaler.look(15, 21, 0.1) == ([], [])
    assert len(scaler.asked) == 2
    assert scaler.look(30, 23, 0.1) == ([], [])
    assert len(scaler.asked) == 2, "a burst that is over at the next look needs no replica"
    assert scaler.look(45, 23, 0.1) == ([], [])
    assert (len(scaler.asked), scaler.starting) == (3, {2: 145})
    assert scaler.look(135, 29, 0.1) == ([], [])
    assert scaler.look(150, 29, 0.1) == ([2], [])


def test_full_caches_ask_for_more_than_few_requests_do() -> None:
    scaler = Autoscaler(PLAN)
    scaler.look(15, 5, 2.5)
    assert len(scaler.asked) == 4


def test_late_first_tokens_ask_for_one_more_than_serve_whatever_else_is_calm() -> None:
    scaler = Autoscaler(replace(PLAN, first_token_s=2.0, burst_s=1))
    assert scaler.late([1.0] * 18 + [2.5] * 2)
    assert not scaler.late([1.0] * 19 + [2.5])
    assert not scaler.late([9.0] * 19), "of so few, one alone would decide"
    for look in range(1, 4):
        scaler.look(look * PERIOD_S, 5, 0.1, late=True)
        assert len(scaler.asked) == 3, "one that starts is not waited for by another one"
    scaler.look(115, 5, 0.1, late=True)
    assert len(scaler.asked) == 4


def test_it_adds_four_or_as_many_as_there_are_and_no_more_than_the_most() -> None:
    scaler = Autoscaler(PLAN)
    counts = []
    for look in range(1, 5):
        scaler.look(look * PERIOD_S, 1000, 0.0)
        counts.append(len(scaler.asked))
    assert counts == [6, 12, 12, 12]


def test_a_replica_goes_once_no_look_of_the_window_asked_for_it() -> None:
    scaler = Autoscaler(PLAN)
    scaler.look(15, 40, 0.0)
    assert scaler.look(120, 35, 0.0) == ([2, 3], [])
    assert [scaler.look(second, 0, 0.0)[1] for second in (135, 150, 165, 180)] == [[], [], [], []]
    assert [scaler.look(second, 0, 0.0)[1] for second in (195, 210, 225, 240, 255)] == [[3], [], [], [], [2]]
    assert scaler.asked == [0, 1]


def test_a_spike_is_felt_until_the_new_replicas_serve_and_costs_less_than_all_of_them() -> None:
    site = changed(prod(), {f"models.{QWEN}.server.replicas": 12, f"models.{QWEN}.server.scaling": {"least": 2}})
    plan = plan_values(site, "site.yaml")
    (scaled,) = outcome_of(plan, Scenario(spike=4, spike_s=300), models=(QWEN,)).models
    (fixed,) = outcome_of(plan, Scenario(spike=4, spike_s=300, scaling=False), models=(QWEN,)).models
    assert scaled.declared.kept
    assert scaled.scenario and fixed.scenario
    assert scaled.scenario.notes == ("of 2 to 12 replicas 3 at the begin, 12 at most, 8.16 on average",)
    assert not fixed.scenario.notes

    first, later = (
        outcome.scenario.by_tier[0].figures["ttft_p95"].value for outcome in (fixed, scaled) if outcome.scenario
    )
    assert later > 1.5 * first
    assert scaled.scenario.figures["hour"].value < 0.9 * fixed.scenario.figures["hour"].value
