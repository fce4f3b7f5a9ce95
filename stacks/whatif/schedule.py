"""When a scenario begins, how long it is measured, and how often it is simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stacks.proof.demand import Load
from stacks.whatif.losses import LostReplicas
from stacks.whatif.scenario import Scenario

# Requests that a column is made of, so that a p99 has twenty beyond it; and simulated time at least and at most.
_REQUESTS = 2000
_SHORTEST_S, _LONGEST_S = 120.0, 20_000.0
# Simulations of a short scenario at most, each with other requests.
_MOST_RUNS = 6
# Requests of a part of the time at most.
_MOST_REQUESTS = 40_000
# How long a scenario's aftermath is looked at.
AFTER_S = 900.0
# Before it: until the schedulers are as full as they will be, and then to see the busiest moment of usual days.
_WARM_S, _MOST_WARM_S = 60.0, 600.0
_CALM_REQUESTS = 300


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Seconds since the begin of one simulation."""

    change_s: float
    """The scenario begins."""
    end_s: float
    """What is measured ends."""
    settled_s: float
    """From then on it may be over: the spike has ended, lost replicas are back."""
    until_s: float
    """No request comes later."""
    runs: int
    """Simulations, each with other requests."""

    @property
    def measured_s(self) -> float:
        """Of all runs together."""
        return (self.end_s - self.change_s) * self.runs


def schedule_of(load: Load, scenario: Scenario, lost: LostReplicas, *, answer_s: float, outage_s: float) -> Schedule:
    """The times of a scenario under `load`, which is without its spike.

    answer_s: of a long answer on a full scheduler. outage_s: until lost replicas are back where they find room.
    """
    spike, rate = scenario.spike, load.requests_per_s
    most_s = max(10.0, _MOST_REQUESTS / rate)
    disturbed = spike is not None or lost.count > 0
    change_s = min(_MOST_WARM_S, max(_WARM_S, 2 * answer_s), most_s)
    change_s += max(_WARM_S, min(_CALM_REQUESTS / rate, _MOST_WARM_S)) if disturbed else 0.0
    if spike is not None:
        window_s, expected = scenario.spike_s, rate * spike * scenario.spike_s
    elif lost.returning and not lost.for_good:
        window_s = min(outage_s, most_s)
        expected = rate * window_s
    else:
        window_s = min(max(_SHORTEST_S, _REQUESTS / rate), _LONGEST_S, most_s)
        expected = math.inf
    end_s = change_s + window_s
    settled_s = end_s if spike is not None else change_s
    if lost.returning:
        settled_s = max(settled_s, change_s + outage_s)
    return Schedule(
        change_s=change_s,
        end_s=end_s,
        settled_s=settled_s,
        until_s=max(end_s, settled_s) + (min(AFTER_S, max(_WARM_S, most_s)) if disturbed else 0.0),
        runs=max(1, min(_MOST_RUNS, math.ceil(_REQUESTS / expected))),
    )
