"""What requests under way may hold of a model that admits by pages, as services/gatekeeper/holds.go counts it."""

from __future__ import annotations

from dataclasses import dataclass

from stacks.whatif.jobs import Job


@dataclass(frozen=True, kw_only=True)
class RoomPlan:
    """The room of a model's replicas."""

    tokens: int
    answer_tokens: int
    """That an answer counts with: of its length nothing is known before."""
    below: tuple[float, ...]
    """By tier: the share of the room below which it is admitted."""


class Room:
    """What is held; without a plan, everything is admitted."""

    def __init__(self, plan: RoomPlan | None) -> None:
        self._plan, self._held = plan, dict[Job, int]()
        self._sum = 0

    def admits(self, job: Job) -> bool:
        """Whether there is place for a request, which is held from then on. A larger one goes alone."""
        if self._plan is None:
            return True
        arrival = job.arrival
        takes = arrival.prompt + self._plan.answer_tokens
        if self._sum and self._sum + takes > int(self._plan.tokens * self._plan.below[arrival.tier]):
            return False
        self._held[job] = takes
        self._sum += takes
        return True

    def leave(self, job: Job) -> None:
        """The request has ended, wherever it was."""
        self._sum -= self._held.pop(job, 0)
