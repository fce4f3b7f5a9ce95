"""Queueing formulas against published values, and the approximation against a simulated queue."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from stacks.proof.demand import Spread
from stacks.proof.queueing import NONE, erlang_c, sojourn_quantile, wait

pytestmark = pytest.mark.row("opening 1", "001.23")


@pytest.mark.parametrize(
    ("servers", "offered", "probability"),
    # One server waits with its utilisation; the others are the textbook's table of Erlang C.
    [(1, 0.8, 0.8), (2, 1.0, 1 / 3), (10, 8.0, 0.4092), (5, 4.0, 0.5541)],
)
def test_erlang_c(servers: int, offered: float, probability: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(probability, abs=5e-4)


@pytest.mark.parametrize(("servers", "offered"), [(3, 2.5), (20, 12.0), (50, 45.0)])
def test_erlang_c_is_the_sum_that_defines_it(servers: int, offered: float) -> None:
    """C = a^k/k! k/(k-a) over that plus the sum of a^n/n! below k."""
    full = offered**servers / math.factorial(servers) * servers / (servers - offered)
    rest = sum(offered**count / math.factorial(count) for count in range(servers))
    assert erlang_c(servers, offered) == pytest.approx(full / (full + rest), rel=1e-9)


def test_many_servers_go_over_into_the_limit() -> None:
    """Halfin and Whitt's limit joins the recursion, and answers at once for any number."""
    assert erlang_c(5001, 4960) == pytest.approx(erlang_c(5000, 4959), rel=0.02)
    assert erlang_c(10**30, 7.0) == 0


def test_erlang_c_at_its_ends() -> None:
    assert erlang_c(3, 0) == 0
    assert erlang_c(3, 3) == erlang_c(3, 9) == 1
    assert 0 < erlang_c(5000, 4990) < 1


def test_constant_service_waits_half_as_long_as_exponential() -> None:
    """Pollaczek and Khinchine: mean wait over all requests is rho / (1 - rho) x service x (1 + c^2) / 2."""
    constant = wait(servers=1, arrivals_per_s=0.8, service_s=1, squared_variation=0)
    exponential = wait(servers=1, arrivals_per_s=0.8, service_s=1, squared_variation=1)
    assert exponential.probability * exponential.mean_s == pytest.approx(4.0)
    assert constant.mean_s == pytest.approx(exponential.mean_s / 2)


def test_too_much_load_waits_for_ever() -> None:
    jam = wait(servers=2, arrivals_per_s=3, service_s=1, squared_variation=1)
    assert math.isinf(jam.mean_s)
    assert jam.beyond(1e9) == 1
    assert math.isinf(sojourn_quantile(0.95, (1.0,), (jam,)))


def test_no_wait_leaves_the_service_time() -> None:
    times = tuple(float(count) for count in range(1, 101))
    assert sojourn_quantile(0.95, times, (NONE,)) == pytest.approx(95, rel=0.01)
    assert NONE.beyond(0) == 0


def simulate(servers: int, rate: float, services: list[float], requests: int, seed: int) -> list[float]:
    """Waiting plus service time of each request in one queue."""
    chance = random.Random(seed)  # noqa: S311
    free = [0.0] * servers
    now, times = 0.0, []
    for _ in range(requests):
        now += chance.expovariate(rate)
        start = max(now, heapq.heappop(free))
        end = start + chance.choice(services)
        heapq.heappush(free, end)
        times.append(end - now)
    return times[requests // 10 :]


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (1, 0.8), (2, 0.7), (4, 0.6), (8, 0.85)])
def test_percentiles_are_those_of_a_simulated_queue(servers: int, busy: float) -> None:
    """Long-tailed prompts: the 95th percentile is within 30 % of 40,000 simulated requests."""
    services = [tokens / 10_000 for tokens in Spread(2000, 16_000).points]
    mean = sum(services) / len(services)
    spread = sum((each - mean) ** 2 for each in services) / len(services) / mean**2
    rate = busy * servers / mean
    queue = wait(servers=servers, arrivals_per_s=rate, service_s=mean, squared_variation=spread)
    found = sojourn_quantile(0.95, tuple(services), (queue,))
    times = sorted(simulate(servers, rate, services, 40_000, seed=servers))
    assert found == pytest.approx(times[int(0.95 * len(times))], rel=0.3)


def test_points_keep_mean_and_percentiles() -> None:
    spread = Spread(2000, 16_000)
    assert sum(spread.points) / len(spread.points) == pytest.approx(spread.mean)
    assert spread.quantile(0.5) == pytest.approx(2000)
    assert spread.quantile(0.95) == pytest.approx(16_000)
    assert list(spread.points) == sorted(spread.points)
    assert Spread(7, 7).mean == 7
    assert Spread(1, 1e30).mean < 1e4
