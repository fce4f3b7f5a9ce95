"""The demand on a model: load, targets, and what the site pays. Plain values, made from a site's settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.95)
# Points of equal probability that represent a distribution; their last but one is the 95th percentile.
_POINTS = 20
# A 95th percentile of 700 times the median; beyond, the mean is all tail and says nothing.
_WIDEST = 4.0


@dataclass(frozen=True)
class Spread:
    """A log-normal distribution of token counts, by its median and 95th percentile.

    Prompt and answer lengths of chat traffic are long-tailed; log-normal is what two percentiles allow to say.
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
    def points(self) -> tuple[float, ...]:
        """Counts of equal probability, ascending; their mean is the distribution's."""
        raw = [self.quantile((place + 0.5) / _POINTS) for place in range(_POINTS)]
        scale = self.mean * _POINTS / sum(raw)
        # The last point is the whole tail, so it alone takes what the others leave out of the mean.
        raw[-1] += sum(raw) * (scale - 1)
        return tuple(raw)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Traffic of one model at its busiest, over all replicas."""

    requests_per_s: float
    prompt_tokens: Spread = Spread(2000, 16_000)
    answer_tokens: Spread = Spread(400, 2000)
    prefix_hit: float = 0.0
    """Share of prompt tokens that are found in a cache, 0 to 1."""

    @property
    def request_tokens(self) -> float:
        """Mean prompt plus mean answer."""
        return self.prompt_tokens.mean + self.answer_tokens.mean

    @property
    def longest_tokens(self) -> float:
        """What the context must hold: the 95th percentiles of prompt and answer."""
        return self.prompt_tokens.p95 + self.answer_tokens.p95


@dataclass(frozen=True, kw_only=True)
class Slo:
    """Latency targets in milliseconds; None for any."""

    ttft_p95_ms: float | None = None
    itl_p95_ms: float | None = None


NO_TARGETS = Slo()


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What the site pays."""

    gpu_hour: float
    """For one GPU and hour, all but power if `power_kwh` is given."""
    currency: str = "EUR"
    power_kwh: float = 0.0
