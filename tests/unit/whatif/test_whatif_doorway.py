"""The API server of a simulated replica: requests pass it one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.proof.front_end import FRONT_END
from stacks.whatif.doorway import Doorway
from stacks.whatif.jobs import Job
from stacks.whatif.lengths import seeded
from stacks.whatif.rank import Rank, RankPlan
from stacks.whatif.simulation import Outage, Run, Simulation
from stacks.whatif.tally import Counts, Tally, quantile, together
from stacks.whatif.traffic import Arrival
from tests.unit.whatif.workloads import Plain, served

pytestmark = pytest.mark.row("opening 12", "001.22")


def job(answer: int = 4) -> Job:
    return Job(Arrival(at_s=0.0, tier=0, prompt=128, answer=answer, parts=()), 0)


def rank(step_s: float = 0.01) -> Rank:
    plan = RankPlan(step_s=lambda *_: step_s, slots=1000, batched_tokens=2000_000, cache_tokens=10**9)
    return Rank(plan, Tally((), 1), 1, lambda _: None, seeded("doorway", "drafts"))


def test_requests_that_come_at_once_pass_one_after_the_other() -> None:
    door = Doorway(FRONT_END)
    passed = [door.enter(job(), 1.0, [rank()]) for _ in range(3)]
    own, next_s = 128 * FRONT_END.prompt_token_s, FRONT_END.arriving_s(128)
    assert passed == pytest.approx([1 + own, 1 + own + next_s, 1 + own + 2 * next_s])
    assert door.enter(job(), 9.0, [rank()]) == pytest.approx(9 + own)


def test_what_steps_give_makes_them_pass_slower_and_never_by_more_than_half() -> None:
    def second_passes(writing: int) -> float:
        busy, door = rank(), Doorway(FRONT_END)
        for _ in range(writing):
            busy.submit(job(answer=500), 0.0)
        while busy.wake_s < 0.1:
            busy.wake(busy.wake_s)
        door.enter(job(), 1.0, [busy])
        return door.enter(job(), 1.0, [busy]) - 1.0

    idle = second_passes(0)
    share = FRONT_END.outputs_s(20, 20) / 0.01
    assert second_passes(20) == pytest.approx(idle / (1 - share))
    assert second_passes(500) == pytest.approx(2 * idle)


def test_a_lost_replica_loses_what_had_not_passed() -> None:
    door, waiting = Doorway(FRONT_END), job()
    door.enter(waiting, 0.0, [])
    assert door.stop() == [waiting]
    assert not door.jobs


def simulated(rate: float, *, outages: tuple[Outage, ...] = (), drain_s: float = 0.0) -> tuple[Run, Counts]:
    """One replica that computes everything in steps of 10 ms, for 20 s."""
    model = replace(served(step_s=0.01, slots=10**6), front_end=FRONT_END)
    run = Simulation(model, Plain(rate=rate), seed="1", outages=outages).run(20, drain_s=drain_s)
    return run, together(run.tally.counts[0])


def test_requests_come_out_no_faster_than_they_pass() -> None:
    """A server passes 460 requests/s of 100 tokens; of 200 none waits long, and of 600 a quarter is left."""
    run, counts = simulated(200.0)
    assert quantile(counts.first_s, 0.5) < 0.03
    assert run.under_way < 20
    run, counts = simulated(600.0)
    assert len(counts.first_s) < 20 * (1 - FRONT_END.step_s / 0.01) / FRONT_END.arriving_s(100) * 1.05
    assert run.under_way > 0.2 * counts.came
    assert quantile(counts.first_s, 0.5) > 1.0


def test_every_request_at_a_door_ends_once() -> None:
    """Also of a replica that is lost with a queue in front of it, and comes back."""
    lost = Outage(begins_s=10.0, ends_s=11.0, replicas=(0,))
    run, counts = simulated(600.0, outages=(lost,), drain_s=1e6)
    assert run.under_way == 0
    assert counts.came == counts.ends.total()
    assert counts.ends["lost"] > 500
