"""A replica of a model: its API server, its schedulers, and whether it is there."""

from __future__ import annotations

from stacks.proof.front_end import FrontEnd
from stacks.whatif.doorway import Doorway
from stacks.whatif.picker import STALE_S, Metrics
from stacks.whatif.rank import Rank


class RunningReplica:
    """One of several that get a model's requests."""

    def __init__(self, number: int, ranks: list[Rank], front_end: FrontEnd | None) -> None:
        self.number, self.ranks = number, ranks
        self.door = Doorway(front_end) if front_end else None
        self.held = 0
        self.alive = True
        self.leaving = False
        """Whether it ends once it has answered what it holds; it gets no more."""
        self.lost_s = 0.0

    def fresh(self, now: float) -> bool:
        """Whether pickers still go by its metrics."""
        return self.alive or now - self.lost_s < STALE_S

    def metrics(self) -> Metrics:
        """Of its first rank, whose series alone the picker reads."""
        rank = self.ranks[0]
        return Metrics(len(rank.waiting), rank.cache.share, rank.places.running, rank.awaited)
