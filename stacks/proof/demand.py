"""The demand on a model: load, targets, and what the site pays. Plain values, made from a site's settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Literal, get_args

_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.95)
# Shares between which a distribution is cut; finer at the end, where a few requests hold much of the work.
_EDGES = (0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.91, 0.95, 0.975, 0.985, 0.993, 0.997, 0.999, 1)
# A 95th percentile of 700 times the median; beyond, the mean is all tail and means nothing.
_WIDEST = 4.0


@dataclass(frozen=True)
class Stratum:
    """A part of a distribution."""

    share: float
    """Of the requests, 0 to 1."""
    tokens: float
    """Their mean."""
    most: float
    """None of them has more."""


@dataclass(frozen=True)
class Spread:
    """A log-normal distribution of token counts, by its median and 95th percentile.

    Prompt and answer lengths of chat traffic are long-tailed; log-normal is what two percentiles determine.
    """

    p50: float
    p95: float

    @property
    def _sigma(self) -> float:
        return min(_WIDEST, math.log(self.p95 / self.p50) / _Z95)

    @cached_property
    def mean(self) -> float:
        """Mean of the log-normal: p50 x exp(sigma^2 / 2)."""
        return self.p50 * math.exp(self._sigma**2 / 2)

    def quantile(self, share: float) -> float:
        """The count that this share of requests does not exceed; `share` strictly between 0 and 1."""
        return self.p50 * math.exp(self._sigma * _NORMAL.inv_cdf(share))

    @cached_property
    def strata(self) -> tuple[Stratum, ...]:
        """The distribution in parts, ascending, finer in the tail; the mean of each is the log-normal's within it."""
        return tuple(
            Stratum(
                share=high - low,
                tokens=self.mean * (self._tilted(high) - self._tilted(low)) / (high - low),
                most=self.quantile(high) if high < 1 else math.inf,
            )
            for low, high in pairwise(_EDGES)
        )

    @cached_property
    def borders(self) -> tuple[float, ...]:
        """Where between the means of two neighbouring parts the shorter one ends, as a share of the way."""
        return tuple(
            min(1.0, max(0.0, (low.most - low.tokens) / (high.tokens - low.tokens)))
            if high.tokens > low.tokens
            else 0.5
            for low, high in pairwise(self.strata)
        )

    def _tilted(self, share: float) -> float:
        """Part of the mean that the shortest requests of this share hold: Phi(z - sigma)."""
        if share in (0.0, 1.0):
            return share
        return _NORMAL.cdf(_NORMAL.inv_cdf(share) - self._sigma)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Traffic of one model at its busiest, over all replicas."""

    requests_per_s: float
    prompt_tokens: Spread = Spread(2000, 16_000)
    answer_tokens: Spread = Spread(400, 2000)
    prefix_hit: float = 0.0
    """Share of prompt tokens that are found in a cache, 0 to 1."""
    common_prefix: float = 0.0
    """Of it, the share of prompt tokens that several tenants send."""

    @property
    def request_tokens(self) -> float:
        """Mean prompt plus mean answer."""
        return self.prompt_tokens.mean + self.answer_tokens.mean

    @property
    def longest_tokens(self) -> float:
        """What the context must hold: the 95th percentiles of prompt and answer."""
        return self.prompt_tokens.p95 + self.answer_tokens.p95


Metric = Literal["ttft", "itl", "tpot"]
"""Time to the first token; between what two steps give a request, which is a token each or, with drafts, several; from
the first token to the last, by the tokens between."""
METRICS: tuple[Metric, ...] = get_args(Metric)
PERCENTS = (50, 95, 99)
# A gap's percentile bounds the mean as well: see `Slo.mean_step_ms`.
GAPS: tuple[Metric, ...] = ("itl", "tpot")


@dataclass(frozen=True, kw_only=True)
class LatencyTarget:
    """So many percent of a metric's values are at most that."""

    metric: Metric
    percent: int
    ms: float

    @property
    def share(self) -> float:
        """0.95 for 95 percent."""
        return self.percent / 100

    @property
    def key(self) -> str:
        """As a site's `slo` calls it."""
        return f"{self.figure}_ms"

    @property
    def figure(self) -> str:
        """As figures are called: `ttft_p95`."""
        return f"{self.metric}_p{self.percent}"

    @property
    def title(self) -> str:
        """As people call it."""
        return f"{self.metric.upper()} p{self.percent}"


@dataclass(frozen=True)
class Slo:
    """Latency targets, at most one for each percentile of each metric."""

    targets: tuple[LatencyTarget, ...] = ()

    @classmethod
    def of(cls, **targets_ms: float | None) -> Slo:
        """Targets by their keys, such as `ttft_p95_ms=2000`; None for no target. Raises ValueError for another key."""
        keys = {LatencyTarget(metric=metric, percent=percent, ms=0.0).key for metric in METRICS for percent in PERCENTS}
        if unknown := sorted(targets_ms.keys() - keys):
            raise ValueError(f"no target is called {unknown[0]}; allowed: {', '.join(sorted(keys))}")
        return cls(
            tuple(
                LatencyTarget(metric=metric, percent=percent, ms=ms)
                for metric in METRICS
                for percent in PERCENTS
                if (ms := targets_ms.get(f"{metric}_p{percent}_ms")) is not None
            )
        )

    def but(self, **targets_ms: float | None) -> Slo:
        """These targets, with those of the given keys replaced; None takes one out."""
        return Slo.of(**(self.by_key | targets_ms))

    @property
    def by_key(self) -> dict[str, float | None]:
        """Key -> milliseconds."""
        return {target.key: target.ms for target in self.targets}

    def of_metrics(self, *metrics: Metric) -> tuple[LatencyTarget, ...]:
        """The targets of these metrics."""
        return tuple(target for target in self.targets if target.metric in metrics)

    def mean_step_ms(self, tokens_per_step: float = 1.0) -> float | None:
        """Bound of the mean step: the tightest of ITL's targets, and of TPOT's for the tokens that a step gives.

        A stream that is slower than that on average is slower than promised, whatever share of its gaps is within.
        """
        steps = [target.ms for target in self.of_metrics("itl")]
        steps += [target.ms * tokens_per_step for target in self.of_metrics("tpot")]
        return min(steps, default=None)

    @property
    def longest_ttft_ms(self) -> float | None:
        """The longest wait for a first token that a target allows: the one of the highest percentile."""
        return max((target.ms for target in self.of_metrics("ttft")), default=None)


NO_TARGETS = Slo()


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What the site pays."""

    gpu_hour: float
    """For one GPU and hour, all but power if `power_kwh` is given."""
    currency: str = "EUR"
    power_kwh: float = 0.0
