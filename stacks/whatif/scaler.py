"""How many replicas an autoscaler asks for, as Kubernetes' does it on the metrics of KEDA's triggers.

The HorizontalPodAutoscaler looks every 15 s. For each metric it takes the total over its target of one replica, rounded
up, unless that is within a tenth of what there is; the largest counts. It adds what every look of 30 s asked for, up to
4 replicas or as many as there are in 15 s. It takes away what no look of the window asked for, one replica a minute
(kubernetes v1.34, pkg/controller/podautoscaler: horizontal.go, replica_calculator.go; defaults of its API and flags).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

PERIOD_S = 15.0
_TOLERANCE = 0.1
_MOST_ADDED = 4


@dataclass(frozen=True, kw_only=True)
class ScaledCounts:
    """Between which counts a model scales, and by what."""

    least: int
    most: int
    first: int
    """Replicas that serve at the begin: what it asks for under the load before."""
    requests: int
    """Under way in a replica, from which on there is one more."""
    kv_share: float
    """Of a replica's cache in use, from which on there is one more."""
    window_s: float
    """A replica goes once none of these was asked for so long."""
    first_token_s: float = math.inf
    """More are asked for while less than this share of first tokens came within so many seconds."""
    first_token_share: float = 0.95
    fewest: int = 20
    """Of fewer first tokens none is late."""
    seen_s: float = 120.0
    """First tokens of so many seconds count."""
    late_step: float = 1.15
    """Of those that serve, so many are asked for while first tokens are late."""
    burst_s: float
    """One more comes once it was asked for so long."""
    step_s: float
    """One replica goes in so many seconds."""
    start_s: float
    """Until a replica that is asked for serves."""


class Autoscaler:
    """Which replicas there are to be. Use it once."""

    def __init__(self, plan: ScaledCounts) -> None:
        self._plan = plan
        self.asked = [*range(plan.first)]
        """Numbers of replicas that the Deployment has, the newest last."""
        self.starting: dict[int, float] = {}
        """When each of those that start will serve, by number."""
        self.next_s = PERIOD_S
        self._wishes: deque[tuple[float, int]] = deque()
        self._ended_s = -math.inf
        self.seen_s = plan.seen_s

    def late(self, firsts: Sequence[float]) -> bool:
        """Whether these times to the first token, in seconds, are too long."""
        plan = self._plan
        within = sum(first <= plan.first_token_s for first in firsts)
        return len(firsts) >= plan.fewest and within < plan.first_token_share * len(firsts)

    def look(self, now: float, requests: int, caches: float, *, late: bool = False) -> tuple[list[int], list[int]]:
        """Replicas that serve from now on, and those that are to end.

        requests: under way. caches: shares of the caches in use, summed over the replicas. late: first tokens were.
        """
        plan, count = self._plan, len(self.asked)
        self.next_s = now + PERIOD_S
        there = [number for number, ready_s in self.starting.items() if ready_s <= now]
        for number in there:
            del self.starting[number]
        slower = math.ceil(plan.late_step * (count - len(self.starting))) if late else 0
        wish = max(_wish(count, needed) for needed in (requests / plan.requests, caches / plan.kv_share, slower))
        self._wishes.append((now, max(plan.least, min(plan.most, wish))))
        while self._wishes[0][0] < now - plan.window_s:
            self._wishes.popleft()
        wanted = min(wish for at_s, wish in self._wishes if at_s > now - plan.burst_s)
        if wanted > count:
            free = [number for number in range(plan.most) if number not in self.asked]
            for number in free[: min(wanted - count, max(_MOST_ADDED, count))]:
                self.asked.append(number)
                self.starting[number] = now + plan.start_s
        ending: list[int] = []
        if max(wish for _, wish in self._wishes) < count and now >= self._ended_s + plan.step_s:
            self._ended_s, number = now, self.asked.pop()
            # One that starts answers nothing yet.
            ending = [number] if self.starting.pop(number, None) is None else []
        return there, ending


def _wish(count: int, needed: float) -> int:
    """needed: replicas, by one metric."""
    return count if abs(needed / count - 1) <= _TOLERANCE else math.ceil(needed)
