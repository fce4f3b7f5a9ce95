"""The API server of a simulated replica: requests pass it one after the other."""

from __future__ import annotations

import pytest

from stacks.proof.front_end import FRONT_END
from stacks.whatif.doorway import Doorway
from stacks.whatif.jobs import Job
from stacks.whatif.lengths import seeded
from stacks.whatif.rank import Rank, RankPlan
from stacks.whatif.tally import Tally
from stacks.whatif.traffic import Arrival

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
