"""A case at both ends of its band: the same settings, on an engine as fast and as slow as published ones.

Only the chosen case is looked at so. Queues do not grow in proportion to the time of a step, so the steady state is
computed again at either end; what is multiplied is the time of a step alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from stacks.proof.bands import band_of
from stacks.proof.case import Case, Shortcoming, missed
from stacks.proof.demand import GAPS, LatencyTarget, Load
from stacks.proof.figures import Band, Span
from stacks.proof.serving import Steady

Verdict = Literal["holds", "uncertain", "fails"]
"""holds: over the whole band. uncertain: by the computed figure or at one end, and not at all three. fails: it does not
fit, or misses a target or the load even at the fast end."""

# Requests per second at which each has its replica to itself.
CALM = 1e-6
# Replicas beyond which a load is refused instead of searched further.
MOST_REPLICAS = 1024
# Beyond it, the search for the largest load ends.
_MOST_REQUESTS_PER_S = 1e6
# Halvings of the interval that holds the largest load: 1 % of it is left.
_ROUNDS = 7


@dataclass(frozen=True)
class End:
    """`case` with its settings as they are, each of whose steps takes `pace` times as long as computed."""

    case: Case
    pace: float
    nominal: End | None = None
    """The end at pace 1, whose capacity is no more than a faster one's, and no less than a slower one's."""

    @property
    def _load(self) -> Load:
        return self.case.steady.load

    @cached_property
    def steady(self) -> Steady:
        """The declared load in its steady state. Raises ValueError where none is declared."""
        if self.pace == 1.0:
            return self.case.steady
        engine = self.case.steady.engine
        return Steady(replace(engine, roofline=engine.roofline.at(self.pace)), self._load, self.case.schedulers)

    def _kept(self, *, requests_per_s: float | None = None, replicas: int | None = None) -> bool:
        """Whether another load, or another number of replicas, is carried within every target."""
        load = self._load if requests_per_s is None else replace(self._load, requests_per_s=requests_per_s)
        count = self.case.replicas if replicas is None else replicas
        if load == self._load and count == self.case.replicas:
            return self.keeps
        return Steady(self.steady.engine, load, count * self.case.layout.data).within(self.case.order.slo)

    @cached_property
    def keeps(self) -> bool:
        """Whether the declared load is carried within every target."""
        return self.steady.within(self.case.order.slo)

    @cached_property
    def capacity_requests_per_s(self) -> float:
        """The most requests per second of the declared kind that the replicas carry within the targets."""
        return self._capacity[0]

    @cached_property
    def _capacity(self) -> tuple[float, float]:
        """Requests per second that are carried, and a little more that are not."""
        carried, refused = self.nominal._capacity if self.nominal else (0.0, math.inf)

        def carries(rate: float) -> bool:
            if self.pace < 1 and rate <= carried:
                return True
            if self.pace > 1 and rate >= refused:
                return False
            return self._kept(requests_per_s=rate)

        low, high = 0.0, self._load.requests_per_s
        if self.pace > 1:
            # Most carry many times their load, and a slower end no more than this one.
            while high < refused:
                low, high = high, high * 2
            while low and not carries(low):
                low, high = (low / 2 if low > self._load.requests_per_s else 0.0), low
        while carries(high) and high < _MOST_REQUESTS_PER_S:
            low, high = high, high * 2
        if not low:
            if not carries(CALM):
                return 0.0, CALM
            # The load is too large: what is left in the end is a part of what is carried, and not of the load.
            while high > 2 * CALM and not carries(high / 2):
                high /= 2
            low = high / 2
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if carries(middle) else (low, middle)
        return low, high

    @cached_property
    def replicas(self) -> int | None:
        """The fewest that carry the declared load within the targets; None where no number does.

        More replicas make no single step faster: a target that an idle replica misses is missed by all.
        """
        if not self._kept(requests_per_s=CALM, replicas=1):
            return None
        low, high = 0, 1
        while not self._kept(replicas=high):
            if high >= MOST_REPLICAS:
                return None
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._kept(replicas=middle) else (middle, high)
        return high


@dataclass(frozen=True)
class Ends:
    """What holds of a case over its whole band."""

    case: Case

    @cached_property
    def band(self) -> Band:
        """Of step times: published ones over the computed ones."""
        return band_of(self.case.order).of_times

    @cached_property
    def fast(self) -> End:
        return End(self.case, self.band.low, self.nominal)

    @cached_property
    def nominal(self) -> End:
        return End(self.case, 1.0)

    @cached_property
    def slow(self) -> End:
        return End(self.case, self.band.high, self.nominal)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether it fits, carries its load and keeps its targets, at every pace of the band.

        A slower pace keeps no target that a faster one misses, so one end decides.
        """
        if self.case.fit_problems:
            return "fails"
        if self.case.order.load is None:
            return "holds"
        if self.case.load_problems:
            return "uncertain" if self.fast.keeps else "fails"
        return "holds" if self.slow.keeps else "uncertain"

    @cached_property
    def doubts(self) -> list[Shortcoming]:
        """What does not hold over the whole band, each with its range; empty where all holds.

        Of a case that fails: what the computed figures miss, or why it does not fit.
        """
        case, verdict = self.case, self.verdict
        if verdict == "holds" or case.fit_problems:
            return case.fit_problems
        if any(problem.kind == "overload" for problem in case.load_problems):
            return [self._carrying(problem.text) for problem in case.load_problems]
        if not case.load_problems and not self.slow.steady.stable:
            rate = case.steady.load.requests_per_s
            return [
                self._carrying(f"{rate:g} requests/s are more than {case.replicas} x {case.layout} can carry there")
            ]
        judged = [case.steady] if verdict == "fails" else [case.steady, self.slow.steady]
        return [
            Shortcoming(kind=target.metric, text=self._ranged(target), target=target)
            for target in case.order.slo.targets
            if not all(steady.keeps(target) for steady in judged)
        ]

    def _carrying(self, text: str) -> Shortcoming:
        carried = self.span(lambda end: end.capacity_requests_per_s).words("requests/s")
        return Shortcoming(kind="overload", text=f"{text}; they carry {carried} over the band")

    def _ranged(self, target: LatencyTarget) -> str:
        over = self.latency(lambda steady: steady.quantile_s(target.metric, target.share))
        text = f"{missed(self.case.steady, target)}; {over.words('ms')} over the band"
        if target.metric in GAPS and (over.slow or math.inf) <= target.ms:
            # Then the mean is what misses.
            text += f", the mean {self.latency(lambda steady: steady.mean_gap_s(target.metric)).words('ms')}"
        return text

    def latency(self, seconds: Callable[[Steady], float]) -> Span:
        """Milliseconds at both ends of a time that a steady state has."""
        return self.span(lambda end: 1e3 * seconds(end.steady))

    def span(self, value: Callable[[End], float | None]) -> Span:
        """A figure at both ends; what is infinite there is none."""
        fast, slow = (
            None if (figure := value(end)) is None or math.isinf(figure) else figure for end in (self.fast, self.slow)
        )
        return Span(fast=fast, slow=slow)
