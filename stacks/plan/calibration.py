"""Step times that a site has measured itself: how they follow from its metrics, and which of them count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from stacks.proof.demand import Load, Spread
from stacks.proof.memory import EngineVersion
from stacks.proof.order import MeasuredPace
from stacks.proof.proof import Proof
from stacks.proof.serving import PATH_S, Steady
from stacks.site.demand import OrderedModelSpec

# Two hours of them: of fewer, the ends of the band mean nothing.
FEWEST_PERIODS = 12
# Beyond it, something else is wrong: another model than the site's file has, GPUs that are throttled, a wrong load.
FASTEST, SLOWEST = 0.2, 5.0
# Other loads than those that were measured are no nearer than this; estimated.
_LEAST_BAND = 0.05
_ROUNDS = 20
# A pace explains what was measured if the proof has it within this.
_EXPLAINED = 0.01


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
    ttft_s: float
    """To the first token, at the engine; NaN where it was not measured."""


def pace_of(proof: Proof, period: Period) -> float | None:
    """How many times as long as computed the steps of this period took, by its times between tokens.

    None where no pace explains what was measured, or no load is declared.

    It is the one at which the steady state of the period's own load has the mean time between tokens that was measured.
    Queues do not grow in proportion to it, so it is searched.
    """
    return _pace(proof, period, period.itl_s, lambda steady: steady.itl_mean_s)


def prompt_pace_of(proof: Proof, period: Period) -> float | None:
    """The same by its times to the first token, which prompts and queues decide."""
    return _pace(proof, period, period.ttft_s, lambda steady: steady.ttft.total - PATH_S)


def _pace(proof: Proof, period: Period, measured_s: float, of: Callable[[Steady], float]) -> float | None:
    order = proof.order
    if order.load is None or math.isnan(measured_s):
        return None
    load = replace(
        order.load,
        requests_per_s=period.requests_per_s,
        prompt_tokens=_scaled(order.load.prompt_tokens, period.prompt_tokens),
        answer_tokens=_scaled(order.load.answer_tokens, period.answer_tokens),
        prefix_hit=period.prefix_hit,
        common_prefix=min(order.load.common_prefix, period.prefix_hit),
    )

    def seconds(pace: float) -> float:
        steady = _steady(proof, load, period, pace)
        return of(steady) if steady.stable else math.inf

    known = order.measured.pace if order.measured else 1.0
    low, high = FASTEST / known, SLOWEST / known
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        if seconds(middle) < measured_s:
            low = middle
        else:
            high = middle
    # Also not at the edge of what is stable, where the search ends for times that no stable pace has.
    explained = abs(seconds(low) - measured_s) <= _EXPLAINED * measured_s
    return known * low if explained else None


def _steady(proof: Proof, load: Load, period: Period, pace: float) -> Steady:
    engine = proof.case.steady.engine
    schedulers = period.replicas * proof.case.layout.data
    return Steady(replace(engine, roofline=engine.roofline.at(pace)), load, schedulers)


def _scaled(spread: Spread, mean: float) -> Spread:
    return Spread(spread.p50 * mean / spread.mean, spread.p95 * mean / spread.mean)


def measured_of(paces: Sequence[float], prompt_paces: Sequence[float] = ()) -> MeasuredPace | None:
    """What these paces of periods come to; None of too few.

    prompt_paces: by times to the first token, of which the band holds the median: GPUs may be better at one than at
    the other.
    """
    if len(paces) < FEWEST_PERIODS:
        return None
    ordered = sorted(paces)
    last = len(ordered) - 1
    low, pace, high = (ordered[round(share * last)] for share in (0.05, 0.5, 0.95))
    of_prompts = median(prompt_paces) if prompt_paces else pace
    return MeasuredPace(
        pace=pace,
        low=min(low, of_prompts, pace * (1 - _LEAST_BAND)),
        high=max(high, of_prompts, pace * (1 + _LEAST_BAND)),
        periods=len(ordered),
    )


def counted_of(spec: OrderedModelSpec, gpu: str, engine: EngineVersion | None) -> MeasuredPace | None:
    """What counts of a model's calibration: nothing where it is of other GPUs, another engine or other settings."""
    own = spec.calibration
    if own is None or own.gpu != gpu or own.settings != spec.digest or (engine and own.engine != named(engine)):
        return None
    return MeasuredPace(pace=own.pace, low=own.low, high=own.high, periods=own.periods)


def named(engine: EngineVersion) -> str:
    """`0.32`."""
    return ".".join(map(str, engine))
