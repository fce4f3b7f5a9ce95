"""Waiting times in front of k equal servers, for random arrivals and any service time (M/G/k).

The probability of waiting is Erlang's C formula; the mean wait is the M/M/k wait times (1 + c^2) / 2 with c^2 the
squared coefficient of variation of the service time (Lee and Longton 1959; exact for k = 1, Pollaczek and Khinchine);
those who wait do so for an exponential time, which is exact for M/M/k and the heavy-traffic limit of M/G/k (Kingman).
A picker that sends each request to the emptiest replica comes close to the one queue that this assumes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The time that a request waits for a server."""

    probability: float
    """That it waits at all, 0 to 1."""
    mean_s: float
    """Of those who wait; infinite when the servers cannot keep up."""


_NORMAL = NormalDist()
# Beyond so many servers the limit of Halfin and Whitt (1981) replaces the recursion.
_MANY = 5000
_NEVER = 60.0

NONE = Wait(probability=0.0, mean_s=0.0)


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival finds every server busy; `offered` is arrival rate x mean service time."""
    if offered >= servers:
        return 1.0
    if offered <= 0:
        return 0.0
    if servers > _MANY:
        slack = (1 - offered / servers) * math.sqrt(servers)
        # Far from full: no request waits, and the density below would vanish.
        return 1 / (1 + slack * _NORMAL.cdf(slack) / _NORMAL.pdf(slack)) if slack < 30 else 0.0
    # So many are never busy at once: a Poisson number reaches them with less than e^-60 (Chernoff 1952).
    if servers * math.log(servers / offered) - servers + offered > _NEVER:
        return 0.0
    # Erlang's B by its recursion, which overflows for no number of servers.
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked * servers / (servers - offered * (1 - blocked))


def wait(*, servers: int, arrivals_per_s: float, service_s: float, squared_variation: float) -> Wait:
    """Wait in front of `servers` equal servers.

    squared_variation: variance of the service time over its squared mean.
    """
    offered = arrivals_per_s * service_s
    if offered <= 0:
        return NONE
    if offered >= servers:
        return Wait(probability=1.0, mean_s=math.inf)
    mean = service_s / (servers - offered) * (1 + squared_variation) / 2
    return Wait(probability=erlang_c(servers, offered), mean_s=mean)
