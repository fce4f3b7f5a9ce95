"""Step times that a site has measured itself: how they follow from its metrics, and which of them count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stacks.proof.demand import Load, Spread
from stacks.proof.memory import EngineVersion
from stacks.proof.order import MeasuredPace
from stacks.proof.proof import Proof
from stacks.proof.serving import Steady
from stacks.site.demand import CalibrationSpec

# Two hours of them: of fewer, the ends of the band mean nothing.
FEWEST_PERIODS = 12
# Beyond it, something else is wrong: another model than the site's file has, GPUs that are throttled, a wrong load.
FASTEST, SLOWEST = 0.2, 5.0
# Other loads than those that were measured are no nearer than this; estimated.
_LEAST_BAND = 0.05
_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class Period:
    """Means of one revision over some minutes of its metrics."""

    requests_per_s: float
    prompt_tokens: float
    """Of a request, cached ones included."""
    answer_tokens: float
    prefix_hit: float
    """Share of prompt tokens that were cached."""
    replicas: int
    itl_s: float
    """Between what two steps give a request."""


def pace_of(proof: Proof, period: Period) -> float | None:
    """How many times as long as computed the steps of this period took.

    None where no pace explains what was measured, or no load is declared.
    It is the one at which the steady state of the period's own load has the mean time between tokens that was measured.
    Queues do not grow in proportion to it, so it is searched.
    """
    order = proof.order
    if order.load is None:
        return None
    load = replace(
        order.load,
        requests_per_s=period.requests_per_s,
        prompt_tokens=_scaled(order.load.prompt_tokens, period.prompt_tokens),
        answer_tokens=_scaled(order.load.answer_tokens, period.answer_tokens),
        prefix_hit=period.prefix_hit,
        common_prefix=min(order.load.common_prefix, period.prefix_hit),
    )
    known = order.measured.pace if order.measured else 1.0
    low, high = FASTEST / known, SLOWEST / known
    if not _itl_s(proof, load, period, low) <= period.itl_s <= _itl_s(proof, load, period, high):
        return None
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        if _itl_s(proof, load, period, middle) < period.itl_s:
            low = middle
        else:
            high = middle
    return known * math.sqrt(low * high)


def _itl_s(proof: Proof, load: Load, period: Period, pace: float) -> float:
    engine = proof.case.steady.engine
    schedulers = period.replicas * proof.case.layout.data
    steady = Steady(replace(engine, roofline=engine.roofline.at(pace)), load, schedulers)
    return steady.itl_mean_s if steady.stable else math.inf


def _scaled(spread: Spread, mean: float) -> Spread:
    return Spread(spread.p50 * mean / spread.mean, spread.p95 * mean / spread.mean)


def measured_of(paces: Sequence[float]) -> MeasuredPace | None:
    """What these paces of periods come to; None of too few."""
    if len(paces) < FEWEST_PERIODS:
        return None
    ordered = sorted(paces)
    last = len(ordered) - 1
    low, pace, high = (ordered[round(share * last)] for share in (0.05, 0.5, 0.95))
    return MeasuredPace(
        pace=pace,
        low=min(low, pace * (1 - _LEAST_BAND)),
        high=max(high, pace * (1 + _LEAST_BAND)),
        periods=len(ordered),
    )


def counted_of(calibration: CalibrationSpec | None, gpu: str, engine: EngineVersion | None) -> MeasuredPace | None:
    """What counts of a site's calibration: nothing where it is of other GPUs, or of another engine."""
    if calibration is None or calibration.gpu != gpu or (engine and calibration.engine != named(engine)):
        return None
    return MeasuredPace(pace=calibration.pace, low=calibration.low, high=calibration.high, periods=calibration.periods)


def named(engine: EngineVersion) -> str:
    """`0.32`."""
    return ".".join(map(str, engine))
