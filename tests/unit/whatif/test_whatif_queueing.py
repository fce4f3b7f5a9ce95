"""The simulation against queueing theory: nothing is lost, Little's law, M/D/1 and M/G/1, and that it moves right."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from stacks.proof.demand import Spread
from stacks.whatif.lengths import seeded
from stacks.whatif.picker import Picking, PickingPlan
from stacks.whatif.simulation import Run, ServedModel, Simulation
from stacks.whatif.tally import Counts, together
from tests.unit.whatif.workloads import ONE, Plain, served

pytestmark = [pytest.mark.row("opening 12"), pytest.mark.simulations, pytest.mark.exhaustive]

TIGHT = PickingPlan(queue_threshold=4, shedding_threshold=2)


def simulated(model: ServedModel, source: Plain, *, seconds: float = 2000, warm_s: float = 50) -> Run:
    return Simulation(model, source, seed=source.seed, borders_s=(warm_s,)).run(seconds, drain_s=1e6)


def counted(run: Run, phase: int = 1) -> Counts:
    return together(run.tally.counts[phase])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def crowded(rate: float = 40.0) -> tuple[ServedModel, Plain]:
    """Two replicas that get more than they can: 2 x 4 slots of a second each."""
    model = replace(
        served(step_s=0.01, slots=4, replicas=2, picking=TIGHT),
        sheddable=(False, True),
        most_held=10,
        most_parallel=15,
        envoys=2,
    )
    return model, Plain(rate=rate, answer=Spread(100, 300), shares=(0.5, 0.5))


@pytest.mark.parametrize("rate", [2.0, 8.0, 40.0])
def test_every_request_ends_once_or_is_under_way(rate: float) -> None:
    """Whatever is refused where; without a drain some are still there."""
    model, source = crowded(rate)
    for drain_s in (0.0, 1e6):
        run = Simulation(model, source, seed="1").run(300, drain_s=drain_s)
        total = counted(run, 0)
        assert total.came == sum(1 for _ in source.arrivals(300))
        assert total.came == total.ends.total() + run.under_way
        assert bool(run.under_way) == (not drain_s)
    assert (total.refused > 0) == (rate > 2)


def test_the_same_seed_gives_the_same_result_and_another_does_not() -> None:
    model, source = crowded()
    first, again = (Simulation(model, source, seed="1").run(200) for _ in range(2))
    other = Simulation(model, source, seed="2").run(200)
    assert (first.tally.counts, first.trace) == (again.tally.counts, again.trace)
    assert first.tally.counts != other.tally.counts


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_scheduler_of_equal_prompts_is_an_m_d_1_queue(load: float) -> None:
    """Wait = rho s / (2 (1 - rho)), Pollaczek and Khinchine; and Little's law over the same run."""
    service_s = 0.1
    run = simulated(served(prompt_token_s=0.001), Plain(rate=load / service_s), seconds=6000)
    expected = service_s + load * service_s / (2 * (1 - load))
    assert mean(counted(run).first_s) == pytest.approx(expected, rel=0.06)
    assert run.held_s / run.lasted_s == pytest.approx(load / service_s * expected, rel=0.06)


@pytest.mark.parametrize("wide", [1.5, 2.5])
def test_one_scheduler_of_unequal_prompts_is_an_m_g_1_queue(wide: float) -> None:
    """Wait = lambda E[s^2] / (2 (1 - rho)) with the moments of the log-normal."""
    prompt = Spread(1000, 1000 * wide)
    token_s, rate = 1e-4, 6.0
    variance = (prompt.mean / prompt.p50) ** 2 - 1
    service_s = prompt.mean * token_s
    expected = service_s + rate * service_s**2 * (1 + variance) / (2 * (1 - rate * service_s))
    run = simulated(served(prompt_token_s=token_s), Plain(rate=rate, prompt=prompt), seconds=10_000)
    assert mean(counted(run).first_s) == pytest.approx(expected, rel=0.08)


def test_slots_wait_as_an_m_d_k_queue_does() -> None:
    """Answers of one second in four slots at 75 %: Erlang's wait, halved, with Cosmetatos's correction (1975)."""
    slots, busy, step_s = 4, 0.75, 0.01
    source = Plain(rate=slots * busy, prompt=ONE, answer=Spread(100, 100.01))
    run = simulated(served(step_s=step_s, slots=slots), source, seconds=10_000)
    erlang_s = 0.509 / (slots - slots * busy)
    correction = 1 + (1 - busy) * (slots - 1) * (math.sqrt(4 + 5 * slots) - 2) / (16 * busy * slots)
    # The first token comes with the first step, which begins when the one before ends.
    expected = erlang_s / 2 * correction + 1.5 * step_s
    assert mean(counted(run).first_s) == pytest.approx(expected, rel=0.1)


def test_requests_under_way_are_arrivals_times_their_stay() -> None:
    """Little's law of a batch: 100 tokens of 10 ms at 5 requests/s are 5 requests at once."""
    source = Plain(rate=5.0, prompt=ONE, answer=Spread(100, 100.01))
    run = simulated(served(step_s=0.01, slots=1000), source, seconds=3000)
    assert run.held_s / run.lasted_s == pytest.approx(5.0, rel=0.03)
    assert counted(run).answer_tokens / (run.lasted_s - 50) == pytest.approx(500, rel=0.04)


def test_more_load_never_waits_less() -> None:
    waits = [
        mean(counted(simulated(served(prompt_token_s=0.001), Plain(rate=rate), seconds=800)).first_s)
        for rate in (2, 5, 8, 9)
    ]
    assert waits == sorted(waits)


def test_fewer_replicas_never_wait_less() -> None:
    def wait(replicas: int) -> float:
        model = served(prompt_token_s=0.001, replicas=replicas)
        return mean(counted(simulated(model, Plain(rate=9.0), seconds=800)).first_s)

    waits = [wait(replicas) for replicas in (8, 4, 2, 1)]
    assert waits == sorted(waits)


@pytest.mark.row("004.09", "002.15")
def test_requests_below_priority_0_are_refused_first() -> None:
    """The picker refuses them while others are let in; without them, these are refused less."""
    model, source = crowded(14.0)
    urgent, jobs = Simulation(model, source, seed="1").run(400).tally.counts[0]
    assert jobs.ends["picker"] > 0.3 * jobs.came
    assert urgent.ends["picker"] == 0
    assert urgent.refused < 0.5 * jobs.refused


def with_queues(rate: float, room: tuple[int, int] = (6, 2), patience_s: float = 60.0) -> tuple[ServedModel, Plain]:
    """The same with queues in the picker, and in front of the replicas as much room as the gateway lets in."""
    model, source = crowded(rate)
    plan = PickingPlan(queue_threshold=6, shedding_threshold=3, room=room, patience_s=patience_s)
    return replace(model, picking=plan, most_held=20, most_parallel=20, envoys=1), source


@pytest.mark.row("002.15", "001.02")
def test_in_queues_of_their_own_jobs_wait_and_others_go_first() -> None:
    """None is lost in a queue, some jobs wait that were refused without, and others wait less than these."""
    queues, source = with_queues(9.0)
    without = replace(queues, picking=replace(queues.picking, room=()))
    refused = Simulation(without, source, seed="1").run(400).tally.counts[0][1].refused
    run = Simulation(queues, source, seed="1").run(400, drain_s=1e6)
    urgent, jobs = run.tally.counts[0]
    assert jobs.refused < refused
    assert mean(urgent.first_s) < 0.9 * mean(jobs.first_s)
    assert run.under_way == 0
    assert urgent.came + jobs.came == urgent.ends.total() + jobs.ends.total()


@pytest.mark.row("002.15")
def test_who_waits_in_a_queue_for_too_long_is_refused() -> None:
    """Answers of half a minute, and queues that five seconds of arrivals cannot fill."""
    queues, _ = with_queues(1.0, room=(100, 100), patience_s=5.0)
    source = Plain(rate=1.0, answer=Spread(3000, 3001), shares=(0.5, 0.5))
    ends = counted(Simulation(queues, source, seed="1").run(600, drain_s=1e6), 0).ends
    assert ends["picker"] > 0.3 * ends.total()


def test_each_bound_refuses_where_it_is() -> None:
    """The gateway's by Envoy pod, the engine's by replica."""
    source = Plain(rate=40.0, prompt=ONE, answer=Spread(100, 100.01))
    model = served(step_s=0.01, slots=4)
    for bounded, where in ((replace(model, most_parallel=6), "gateway"), (replace(model, most_held=6), "engine")):
        run = Simulation(bounded, source, seed="1").run(100)
        assert run.under_way == 6
        ends = counted(run, 0).ends
        assert {end for end, count in ends.items() if count} == {"answered", where}
        # Four slots of a second each.
        assert ends["answered"] == pytest.approx(400, rel=0.05)


def test_a_full_cache_throws_the_last_one_out_and_loses_nothing() -> None:
    """Two long answers do not fit together: one starts again, both end whole."""
    source = Plain(rate=2.0, prompt=Spread(100, 100.01), answer=Spread(500, 500.01))
    run = Simulation(served(step_s=0.01, slots=8, cache=2000), source, seed="1").run(200, drain_s=1e6)
    total = counted(run, 0)
    assert run.tally.thrown_out > 0
    assert total.ends == {"answered": total.came}
    assert total.answer_tokens == 500 * total.came


@pytest.mark.row("001.05")
def test_a_long_prompt_does_not_stall_running_answers() -> None:
    """64,000 tokens in chunks: a gap is as long as one chunk; in one piece it is as long as all of them."""

    def longest_gap_s(batched: int) -> float:
        model = served(step_s=0.01, prompt_token_s=1e-4, slots=64, batched=batched, cache=10**7)
        prompts = Spread(1000, 30_000)
        run = simulated(model, Plain(rate=0.5, prompt=prompts, answer=Spread(400, 2000)), seconds=1000)
        return max(math.exp((bucket + 1) / 100) for bucket in counted(run).gaps)

    assert longest_gap_s(2048) < 0.25
    assert longest_gap_s(10**6) > 3.0


@pytest.mark.parametrize("picking", ["picker", "in turn"])
def test_no_scheduler_does_more_than_its_steps_allow(picking: Picking) -> None:
    """Tokens written are at most slots x time / step, whatever comes."""
    random = seeded("1", "plans")
    for _ in range(20):
        slots, step_s = random.randint(1, 16), random.uniform(0.005, 0.05)
        model = served(step_s=step_s, slots=slots, replicas=2, picking=PickingPlan(picking=picking))
        source = Plain(rate=random.uniform(1, 50), prompt=ONE, answer=Spread(20, 200), seed=str(slots))
        run = Simulation(model, source, seed="1").run(60)
        assert counted(run, 0).answer_tokens <= 2 * slots * (60 / step_s + 1)
