"""Queueing formulas against published values, and the approximation against a simulated queue."""

from __future__ import annotations

import heapq
import math
import random
from itertools import pairwise

import pytest

from stacks.proof.demand import Spread
from stacks.proof.queueing import NONE, Wait, erlang_c, wait
from stacks.proof.spreads import Sojourn, compound, gamma_tail

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
    jammed = Sojourn.of([(1.0, 1.0)], jam)
    assert jammed.beyond(1e9) == 1
    assert math.isinf(jammed.quantile(0.95))


def test_no_wait_leaves_the_service_time() -> None:
    times = [(0.01, float(count)) for count in range(1, 101)]
    assert Sojourn.of(times, NONE).quantile(0.95) == pytest.approx(95, rel=0.01)


def test_rare_times_before_leave_the_others_where_they_are() -> None:
    """One in 10,000 that begins later moves no percentile, wherever it comes to lie between the others."""
    times = [(0.2, 1.0), (0.3, 2.0), (0.3, 4.0), (0.2, 8.0)]
    plain = Sojourn.of(times, NONE)
    for later in (0.01, 0.5, 1.9, 3.0):
        joined = Sojourn.of(times, NONE, before=[(0.9999, 0.0), (0.0001, later)])
        for share in (0.1, 0.5, 0.79, 0.8, 0.81, 0.95):
            assert joined.quantile(share) == pytest.approx(plain.quantile(share), rel=3e-3)


def test_a_sum_of_times_and_a_wait_has_the_mean_of_all() -> None:
    """The mean is the area below what lies beyond: 2 to 4 s, a fifth of them 1 s, and half of them 3 s more."""
    even = [(0.01, 2 + place / 50) for place in range(100)]
    joined = Sojourn.of(even, Wait(probability=0.5, mean_s=3.0), before=[(0.8, 0.0), (0.2, 1.0)])
    step = 0.01
    area = sum(joined.beyond(place * step) * step for place in range(8000))
    assert area == pytest.approx(3.0 + 0.2 + 1.5, rel=0.01)


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
    parts = [(part.share, part.tokens / 10_000) for part in Spread(2000, 16_000).strata]
    mean = sum(share * seconds for share, seconds in parts)
    spread = sum(share * (seconds - mean) ** 2 for share, seconds in parts) / mean**2
    rate = busy * servers / mean
    queue = wait(servers=servers, arrivals_per_s=rate, service_s=mean, squared_variation=spread)
    services = [seconds for share, seconds in parts for _ in range(round(1000 * share))]
    times = sorted(simulate(servers, rate, services, 40_000, seed=servers))
    assert Sojourn.of(parts, queue).quantile(0.95) == pytest.approx(times[int(0.95 * len(times))], rel=0.3)


def test_strata_keep_mean_and_percentiles() -> None:
    spread = Spread(2000, 16_000)
    assert sum(part.share for part in spread.strata) == pytest.approx(1)
    assert sum(part.share * part.tokens for part in spread.strata) == pytest.approx(spread.mean)
    assert spread.quantile(0.5) == pytest.approx(2000)
    assert spread.quantile(0.95) == pytest.approx(16_000)
    assert all(lower.tokens < lower.most <= upper.most for lower, upper in pairwise(spread.strata))
    assert Spread(7, 7).mean == 7
    assert Spread(1, 1e30).mean < 1e4


@pytest.mark.parametrize(("count", "crowding"), [(0.3, 1.0), (3.0, 1.0), (3.0, 1.6)])
def test_sums_of_jumps_are_those_of_random_draws(count: float, crowding: float) -> None:
    """Mean, and the share beyond 3.5 and 8.5, of 20,000 draws; crowded counts mix Poisson ones (gamma)."""
    jumps = [(0.5, 1.0), (0.3, 2.0), (0.2, 5.0)]
    chance = random.Random(1)  # noqa: S311
    sums = []
    for _ in range(20_000):
        rate = chance.gammavariate(count / (crowding - 1), crowding - 1) if crowding > 1 else count
        total, clock = 0.0, chance.expovariate(1)
        while clock < rate:
            total += chance.choices([size for _, size in jumps], [share for share, _ in jumps])[0]
            clock += chance.expovariate(1)
        sums.append(total)
    parts = compound(count, crowding, jumps, 1e9)
    assert sum(share for share, _ in parts) == pytest.approx(1)
    assert sum(share * size for share, size in parts) == pytest.approx(sum(sums) / len(sums), rel=0.05)
    for limit in (3.5, 8.5):
        beyond = sum(total > limit for total in sums) / len(sums)
        assert sum(share for share, size in parts if size > limit) == pytest.approx(beyond, abs=0.05)


def test_a_gamma_tail_is_the_published_one() -> None:
    """Chi-squared with ten degrees of freedom is beyond 18.307 with 5 %, and with one beyond 3.841."""
    assert gamma_tail(18.307, 10, 20, 1e9) == pytest.approx(0.05, abs=2e-3)
    assert gamma_tail(3.841, 1, 2, 1e9) == pytest.approx(0.05, abs=5e-3)
    assert gamma_tail(0.0, 1, 1, 0.5) == pytest.approx(1 - math.exp(-0.5))
