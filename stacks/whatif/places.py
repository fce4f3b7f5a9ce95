"""Places of adapters on the GPUs of one scheduler: whose requests run beside each other, and what waits for a copy.

After vLLM 0.32. Requests that run have no more adapters than there are places; others are passed over until the last
request of one has ended (v1/core/sched/scheduler.py). An adapter that no running request is for keeps its place until
another one needs it, the longest unused first (lora/model_manager.py), which a step copies before it computes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PlacesPlan:
    """Of places that are fewer than adapters."""

    places: int
    load_s: float
    """Seconds in which one adapter is copied out of the node's memory."""


class Places:
    """State of one scheduler's places. Adapters go by their numbers; None is the model itself, which needs no place."""

    def __init__(self, plan: PlacesPlan | None) -> None:
        """plan: None where each adapter has a place of its own."""
        self._plan = plan
        # Requests that run, by adapter.
        self._running: dict[int, int] = {}
        # In a place, and no request for them runs; the longest unused first.
        self._unused: dict[int, None] = {}

    @property
    def running(self) -> frozenset[int]:
        """Adapters that requests run with."""
        return frozenset(self._running)

    def admits(self, adapter: int | None) -> bool:
        """Whether a request may start now."""
        if self._plan is None or adapter is None:
            return True
        return adapter in self._running or len(self._running) < self._plan.places

    def start(self, adapter: int | None) -> float:
        """A request starts that is admitted; seconds for which its step waits."""
        if self._plan is None or adapter is None:
            return 0.0
        there = adapter in self._running or adapter in self._unused
        self._unused.pop(adapter, None)
        self._running[adapter] = self._running.get(adapter, 0) + 1
        if there:
            return 0.0
        if len(self._running) + len(self._unused) > self._plan.places:
            del self._unused[next(iter(self._unused))]
        return self._plan.load_s

    def end(self, adapter: int | None) -> None:
        """A request that started runs no more."""
        if self._plan is None or adapter is None:
            return
        self._running[adapter] -= 1
        if not self._running[adapter]:
            del self._running[adapter]
            self._unused[adapter] = None
