"""What a site's own Prometheus measured of each revision, period by period."""

from __future__ import annotations

import math

from components.monitoring import queries
from components.monitoring.prometheus import INTERVAL_S
from sitectl.live.asked_prometheus import AskedPrometheus
from stacks.plan.calibration import Period

PERIOD_S = 600
# Of fewer the mean gap is that of a few requests.
_LEAST_REQUESTS = 20
# Of a replica: a scrape more or less.
_NEARLY = 0.05


def periods(
    prometheus: AskedPrometheus, *, begin: float, end: float, every_s: int = PERIOD_S
) -> dict[str, list[Period]]:
    """Revision, by its name -> its periods in which enough requests came and no replica came or went.

    Only since the oldest of the replicas that run now is there: those before may have been of another engine, or with
    other settings. begin, end: Unix seconds. every_s: how long a period is.
    """
    since = prometheus.by_model(_since(end - begin, every_s))
    figures = {
        name: prometheus.over_time(query, begin=begin + every_s, end=end, every_s=every_s)
        for name, query in _queries(every_s).items()
    }
    return {
        model: [
            period
            for at in sorted(of_model)
            # The first look at the oldest replica may have missed as much as a period.
            if at >= since.get(model, math.inf)
            and (
                period := _period(every_s, {name: of.get(model, {}).get(at, math.nan) for name, of in figures.items()})
            )
        ]
        for model, of_model in figures["itl_s"].items()
    }


def _since(seconds: float, every_s: int) -> str:
    """Unix seconds at which the oldest replica that is up was seen first, as far as `seconds` back."""
    up = f"up{{{queries.ENGINES}}}"
    seen = f"min_over_time(timestamp({up})[{seconds:.0f}s:{every_s}s])"
    return f"min by (model) ({seen} and on (pod) ({up} == 1))"


def _queries(every_s: int) -> dict[str, str]:
    window = f"{every_s}s"
    offloaded = queries.rate("vllm:external_prefix_cache_hits_total", queries.ENGINES, by=("model",), window=window)
    # Scrapes of all engines over those of one that was there all the time: one that was there for a part is a part.
    scraped = f"sum by (model) (sum_over_time(up{{{queries.ENGINES}}}[{window}]))"
    return {
        "requests_per_s": queries.requests_per_s(window=window),
        "prompt": queries.prompt_tokens_per_s(window=window),
        "answer": queries.answer_tokens_per_s(window=window),
        "prefix_hit": queries.cache_hit_share(window=window),
        # Tokens per second that came out of a node's memory.
        "offloaded": offloaded,
        "itl_s": queries.itl_mean_s(window=window),
        "ttft_s": queries.mean("vllm:time_to_first_token_seconds", queries.ENGINES, by=("model",), window=window),
        "replicas": f"{scraped} / {every_s / INTERVAL_S:g}",
    }


def _period(length_s: int, figures: dict[str, float]) -> Period | None:
    rate, replicas = figures["requests_per_s"], figures["replicas"]
    # What was not measured compares as neither.
    if not (rate * length_s >= _LEAST_REQUESTS and replicas >= 1 - _NEARLY and figures["itl_s"] > 0):
        return None
    if abs(replicas - round(replicas)) > _NEARLY * round(replicas):
        return None
    hit = _known(figures["prefix_hit"]) + _known(figures["offloaded"]) / figures["prompt"]
    return Period(
        requests_per_s=rate,
        prompt_tokens=max(1.0, figures["prompt"] / rate),
        answer_tokens=max(1.0, figures["answer"] / rate),
        prefix_hit=min(0.99, hit),
        replicas=round(replicas),
        itl_s=figures["itl_s"],
        ttft_s=figures["ttft_s"],
    )


def _known(figure: float) -> float:
    """Nothing where an engine has no such cache."""
    return 0.0 if math.isnan(figure) else figure
