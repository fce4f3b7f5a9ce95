"""How a canary does beside its model's stable revision, by what Prometheus measured of both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from components.monitoring import queries, revisions
from sitectl.live.asked_prometheus import AskedPrometheus

PAGE = "docs/how-to/try-a-revision.md"


@dataclass(frozen=True, kw_only=True)
class MeasuredRevision:
    """One revision over the time that was looked at. NaN where nothing was measured."""

    requests: float
    failed: float
    """Share of requests that ended with 5xx."""
    ttft_p95_s: float
    itl_p95_s: float


def judge(stable: MeasuredRevision, canary: MeasuredRevision) -> list[str]:
    """Why the canary may not have more sessions; empty where it does as well as the stable revision."""
    if not canary.requests >= revisions.FEWEST:
        known = 0 if math.isnan(canary.requests) else canary.requests
        return [f"{known:,.0f} requests are too few; a verdict needs {revisions.FEWEST}"]
    reasons = []
    if (more := canary.failed - (0 if math.isnan(stable.failed) else stable.failed)) > revisions.MORE_FAILED:
        reasons.append(f"{100 * more:.2g} % more of its requests fail")
    for name, of_stable, own in (
        ("TTFT", stable.ttft_p95_s, canary.ttft_p95_s),
        ("ITL", stable.itl_p95_s, canary.itl_p95_s),
    ):
        # What was not measured compares as neither.
        if own > revisions.SLOWER * of_stable:
            reasons.append(f"its {name} at p95 is {own / of_stable:.1f} times as long")
    return reasons


def measured(prometheus: AskedPrometheus, window: str) -> dict[str, MeasuredRevision]:
    """Revision, by its name -> what it did within this long, which is a duration of PromQL."""
    counted = queries.growth("vllm:time_to_first_token_seconds_count", queries.ENGINES, by=("model",), window=window)
    figures = {
        "requests": prometheus.by_model(counted),
        "failed": prometheus.by_model(revisions.failed_share(window=window)),
        "ttft_p95_s": prometheus.by_model(queries.ttft_s(0.95, window=window)),
        "itl_p95_s": prometheus.by_model(queries.itl_s(0.95, window=window)),
    }
    names = {name for of_model in figures.values() for name in of_model}
    return {
        name: MeasuredRevision(**{figure: of_model.get(name, math.nan) for figure, of_model in figures.items()})
        for name in names
    }
