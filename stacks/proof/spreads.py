"""Distributions of times: sums, mixtures, and how much of them lies beyond a limit."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import itemgetter, mul
from statistics import NormalDist

from stacks.proof.queueing import Wait

Points = Sequence[tuple[float, float]]
"""(probability, value) of each."""

# Cells on which a compound distribution is drawn.
_CELLS = 24
_ROOT2 = math.sqrt(2)
_NORMAL = NormalDist()


def normal_tail(deviations: float) -> float:
    """Probability that a normal value is so many deviations above its mean."""
    return 0.5 * math.erfc(deviations / _ROOT2)


def normal_points(edges: Sequence[float]) -> list[tuple[float, float]]:
    """A normal distribution in a few points, (probability, deviations), with its mean and variance.

    edges: shares at which one point's part ends and the next one's begins.
    """
    borders = [0.0, *(_NORMAL.pdf(_NORMAL.inv_cdf(edge)) for edge in edges), 0.0]
    shares = [end - begin for begin, end in pairwise([0.0, *edges, 1.0])]
    places = [(low - high) / share for (low, high), share in zip(pairwise(borders), shares, strict=True)]
    spread = math.sqrt(sum(share * place**2 for share, place in zip(shares, places, strict=True)))
    return [(share, place / spread) for share, place in zip(shares, places, strict=True)]


def gamma_tail(value: float, mean: float, second: float, come: float) -> float:
    """Probability that a sum of random lumps is beyond `value`.

    mean: of the sum. second: variance of it. come: expected number of lumps; with none the sum is zero. The rest is a
    gamma distribution, by the cube root of Wilson and Hilferty (1931).
    """
    if value < 0:
        return 1.0
    some = -math.expm1(-come)
    if mean <= 0 or some <= 0:
        return 0.0
    given = mean / some
    variance = max(1e-3 * given**2, (second + mean**2) / some - given**2)
    shape = given**2 / variance
    root = (value / given) ** (1 / 3)
    return some * normal_tail((root - 1 + 1 / (9 * shape)) * 3 * math.sqrt(shape))


def compound(count: float, crowding: float, jumps: Points, most: float) -> list[tuple[float, float]]:
    """(probability, sum) of a random number of jumps, by Panjer's recursion (1981) on a grid; none beyond `most`.

    count: mean number. crowding: its variance over its mean, at least 1: Poisson, and more a negative binomial.
    """
    mean = sum(share * size for share, size in jumps)
    second = sum(share * size**2 for share, size in jumps)
    top = min(most, max(size for _, size in jumps) + count * mean + 4 * math.sqrt(count * crowding * second))
    if top <= 0:
        return [(1.0, 0.0)]
    width = top / _CELLS
    cells = [0.0] * (_CELLS + 1)
    for share, size in jumps:
        # A jump between two cells is split so that its mean stays.
        place = min(size / width, float(_CELLS))
        lower = min(_CELLS - 1, int(place))
        cells[lower] += share * (lower + 1 - place)
        cells[lower + 1] += share * (place - lower)
    if crowding < 1 + 1e-6:
        alike, per = 0.0, count
        probabilities = [math.exp(-count * (1 - cells[0]))]
    else:
        alike = 1 - 1 / crowding
        per = alike * (count / (crowding - 1) - 1)
        probabilities = [((1 - alike) / (1 - alike * cells[0])) ** (count / (crowding - 1))]
    scale = 1 / (1 - alike * cells[0])
    weighted = [place * share for place, share in enumerate(cells)]
    for place in range(1, _CELLS + 1):
        before = probabilities[::-1]
        total = sum(map(mul, weighted[1:], before))
        # A Poisson number has no use for the other sum.
        plain = sum(map(mul, cells[1:], before)) if alike else 0.0
        probabilities.append(scale * (alike * plain + per * total / place))
    probabilities[-1] += max(0.0, 1 - sum(probabilities))
    return [(share, place * width) for place, share in enumerate(probabilities)]


def condensed(points: Points, edges: Sequence[float]) -> list[tuple[float, float]]:
    """The same mass and mean in a few points: one for each part of the mass, `edges` as shares of it."""
    total = 0.0
    for share, _ in points:
        total += share
    groups: list[tuple[float, float]] = []
    limits = [edge * total * (1 - 1e-9) for edge in edges]
    last, place, mass, moment, reached = len(limits) - 1, 0, 0.0, 0.0, 0.0
    for share, size in sorted(points, key=itemgetter(1)):
        mass += share
        moment += share * size
        reached += share
        if reached >= limits[place]:
            if mass:
                groups.append((mass, moment / mass))
            mass = moment = 0.0
            while place < last and reached >= limits[place]:
                place += 1
    return groups


@dataclass(frozen=True, kw_only=True)
class DecodeTimes:
    """Times of steps without prompts: a least one, and above it a gamma distribution."""

    least_s: float
    mean_s: float
    variance: float

    @cached_property
    def _shape(self) -> float:
        above = max(1e-9, self.mean_s - self.least_s)
        return above**2 / max(1e-6 * above**2, self.variance)

    def at(self, deviations: float) -> float:
        """The time that a normal value of so many deviations corresponds to (Wilson and Hilferty 1931)."""
        root = 1 - 1 / (9 * self._shape) + deviations / (3 * math.sqrt(self._shape))
        return self.least_s + (self.mean_s - self.least_s) * max(0.0, root) ** 3

    def beyond(self, seconds: float) -> float:
        """Probability of a longer one."""
        if seconds <= self.least_s:
            return 1.0
        root = ((seconds - self.least_s) / max(1e-9, self.mean_s - self.least_s)) ** (1 / 3)
        return normal_tail((root - 1 + 1 / (9 * self._shape)) * 3 * math.sqrt(self._shape))


@dataclass(frozen=True)
class Mixture:
    """(probability, seconds) of what is added to a decode step."""

    parts: tuple[tuple[float, float], ...]

    def beyond(self, seconds: float, decode: DecodeTimes) -> float:
        """Probability that the sum is longer."""
        total = 0.0
        for share, extra in self.parts:
            if share:
                total += share * decode.beyond(seconds - extra)
        return min(1.0, total)


@dataclass(frozen=True)
class Sojourn:
    """A time of `own`, what is before it, and behind both an exponential one that some meet; all independent."""

    own: Points
    """Ascending; the mass of each is spread evenly from its border with the one before to that with the next."""
    before: Points
    wait: Wait
    borders: tuple[float, ...] = ()
    """Where between two neighbours the border is, as a share of the way; halfway where there are none."""

    @classmethod
    def of(cls, own: Points, wait: Wait, *, before: Points = ((1.0, 0.0),), borders: tuple[float, ...] = ()) -> Sojourn:
        """In any order."""
        return cls(tuple(sorted(own, key=itemgetter(1))), tuple(before), wait, borders)

    @cached_property
    def _edges(self) -> tuple[float, ...]:
        places = [place for _, place in self.own]
        shares = self.borders or (0.5,) * (len(places) - 1)
        between = [low + share * (high - low) for share, (low, high) in zip(shares, pairwise(places), strict=True)]
        if not between:
            return (places[0], places[0])
        return (2 * places[0] - between[0], *between, 2 * places[-1] - between[-1])

    @cached_property
    def _below(self) -> tuple[float, ...]:
        """The mass below each edge."""
        return tuple(accumulate((share for share, _ in self.own), initial=0.0))

    def _own_beyond(self, seconds: float) -> float:
        edges, below = self._edges, self._below
        index = bisect_right(edges, seconds) - 1
        if index < 0:
            return 1.0
        if index + 1 == len(edges):
            return 0.0
        part = (seconds - edges[index]) / (edges[index + 1] - edges[index])
        return 1 - below[index] - self.own[index][0] * part

    @cached_property
    def _late(self) -> tuple[tuple[float, float], ...]:
        """(place, probability of having reached it and waiting still): A(t + x) = A(t) e^(-x / mean)."""
        mean_s, probability, exp = self.wait.mean_s, self.wait.probability, math.exp
        sums = [(place + more, share * weight) for share, place in self.own for weight, more in self.before if weight]
        sums.sort()
        state, reached, late = 0.0, sums[0][0], list[tuple[float, float]]()
        for place, share in sums:
            state = state * exp((reached - place) / mean_s) + share * probability
            reached = place
            late.append((place, state))
        return tuple(late)

    def beyond(self, seconds: float) -> float:
        """Probability that the sum is longer."""
        if not math.isfinite(self.wait.mean_s):
            return 1.0
        total = 0.0
        for weight, more in self.before:
            if weight:
                total += weight * self._own_beyond(seconds - more)
        if self.wait.probability:
            index = bisect_right(self._late, (seconds, math.inf)) - 1
            if index >= 0:
                place, state = self._late[index]
                total += state * math.exp((place - seconds) / self.wait.mean_s)
        return max(0.0, min(1.0, total))

    def quantile(self, share: float) -> float:
        """The time that this share does not exceed."""
        if not math.isfinite(self.wait.mean_s):
            return math.inf
        return quantile(share, self.beyond, 0.0, self._edges[-1] + max(more for _, more in self.before))


def quantile(share: float, beyond: Callable[[float], float], low: float, high: float) -> float:
    """The value that this share does not exceed; beyond: probability of more than a value, never rising.

    low: at most the value sought, or near it. high: where the search begins.
    """
    wanted = 1 - share
    while beyond(high) > wanted:
        low, high = high, 2 * high
    if beyond(low) <= wanted:
        low = 0.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > wanted else (low, middle)
    return high
