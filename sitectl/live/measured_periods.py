"""What a site's own Prometheus measured of each revision, period by period."""

from __future__ import annotations

import math

from components.monitoring import queries
from sitectl.live.asked_prometheus import AskedPrometheus
from stacks.plan.calibration import Period

PERIOD_S = 600
# Of fewer the mean gap is that of a few requests.
_LEAST_REQUESTS = 20
# A scrape of one, more or less.
_NEARLY = 0.05


def _queries(window: str) -> dict[str, str]:
    up = f"up{{{queries.ENGINES}}}[{window}]"
    return {
        "requests_per_s": queries.requests_per_s(window=window),
        "prompt": queries.prompt_tokens_per_s(window=window),
        "answer": queries.answer_tokens_per_s(window=window),
        "prefix_hit": queries.cache_hit_share(window=window),
        "itl_s": queries.itl_mean_s(window=window),
        # Scrapes of all engines over those of the one with most: a replica that was there for a part is a part.
        "replicas": f"sum by (model) (sum_over_time({up})) / max by (model) (count_over_time({up}))",
    }


def periods(
    prometheus: AskedPrometheus, *, begin: float, end: float, every_s: int = PERIOD_S
) -> dict[str, list[Period]]:
    """Revision, by its name -> its periods in which enough requests came.

    begin, end: Unix seconds. every_s: how long a period is.
    """
    figures = {
        name: prometheus.over_time(query, begin=begin + every_s, end=end, every_s=every_s)
        for name, query in _queries(f"{every_s}s").items()
    }
    return {
        model: [
            period
            for at in sorted(of_model)
            if (period := _period(every_s, {name: of.get(model, {}).get(at, math.nan) for name, of in figures.items()}))
        ]
        for model, of_model in figures["itl_s"].items()
    }


def _period(length_s: int, figures: dict[str, float]) -> Period | None:
    rate, replicas = figures["requests_per_s"], figures["replicas"]
    # What was not measured compares as neither.
    if not (rate * length_s >= _LEAST_REQUESTS and replicas >= 1 - _NEARLY and figures["itl_s"] > 0):
        return None
    if abs(replicas - round(replicas)) > _NEARLY:
        return None
    return Period(
        requests_per_s=rate,
        prompt_tokens=max(1.0, figures["prompt"] / rate),
        answer_tokens=max(1.0, figures["answer"] / rate),
        prefix_hit=0.0 if math.isnan(figures["prefix_hit"]) else min(0.99, figures["prefix_hit"]),
        replicas=round(replicas),
        itl_s=figures["itl_s"],
    )
