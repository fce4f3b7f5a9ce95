"""The API server of a replica: requests pass it one after the other on their way to a scheduler.

What steps give takes its time too, so requests pass slower meanwhile. A server that is behind puts the tokens of a
stream together, which leaves requests half of its time at least; the larger pieces are not seen in the gaps.
"""

from __future__ import annotations

from collections.abc import Iterable

from stacks.proof.front_end import FrontEnd
from stacks.whatif.jobs import Job
from stacks.whatif.rank import Rank

_LEAST_SPEED = 0.5


class Doorway:
    """State of one API server."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self._free_s = 0.0
        self.jobs: set[Job] = set()
        """Requests that have not passed yet."""

    def enter(self, job: Job, now: float, ranks: Iterable[Rank]) -> float:
        """Take a request; when a scheduler gets it.

        What an unloaded server takes of a short prompt is in every first token, and is no part of this.
        """
        self.jobs.add(job)
        speed = max(_LEAST_SPEED, 1 - sum(rank.outputs_share(self._front_end) for rank in ranks))
        began, prompt = max(now, self._free_s), job.arrival.prompt
        self._free_s = began + self._front_end.arriving_s(prompt) / speed
        return began + prompt * self._front_end.prompt_token_s / speed

    def stop(self) -> list[Job]:
        """Lose everything; what had not passed."""
        jobs, self.jobs, self._free_s = list(self.jobs), set(), 0.0
        return jobs
