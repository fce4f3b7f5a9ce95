"""Is the platform meeting its SLOs: its error budget, then latency per model, per tier and per tenant."""

from __future__ import annotations

from collections.abc import Callable

from components.monitoring import queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query, Shape
from components.monitoring.dashboards.vocabulary import (
    COUNT,
    MODEL,
    OF_MODEL,
    OF_TENANT,
    REQUESTS_PER_S,
    SECONDS,
    SHARE,
    WINDOW,
    lines,
    quantile_panel,
)

_BURN_WINDOWS = ("5m", "1h", "6h", "3d")
# Times the budget's own pace, from which on an alert pages a person: 2 % of 30 days in one hour.
_PAGES_FROM = 14.4
_PERCENTILES = (50, 95, 99)


def _held_to(
    title: str, seconds: Callable[..., str], metric: str, percentile: int, *, good: str, do: str, runbook: str | None
) -> Panel:
    """One percentile of a latency by model, with the target of each model that declares one."""
    return Panel(
        title=f"{title} (P{percentile})",
        good=good,
        do=do,
        unit=SECONDS,
        queries=(
            Query(expression=seconds(percentile / 100, OF_MODEL, window=WINDOW), legend="{{model}}"),
            Query(expression=queries.target_s(metric, percentile, MODEL), legend="{{model}} target", is_target=True),
        ),
        runbook=runbook,
    )


_TTFT = tuple(
    _held_to(
        "Time to the first token, by model",
        queries.ttft_s,
        "ttft",
        percentile,
        good="Below its dashed line, `models.NAME.slo` of the site.",
        do="A queue or long prompts: the dashboard of where the time goes has which.",
        runbook="model-overloaded",
    )
    for percentile in _PERCENTILES
)
_ITL = tuple(
    _held_to(
        "Time between tokens, by model",
        queries.itl_s,
        "itl",
        percentile,
        good="Below its dashed line, `models.NAME.slo` of the site.",
        do="Too many requests at once, prefill of long prompts between steps, or a GPU that is slowed down.",
        runbook="slow-model",
    )
    for percentile in _PERCENTILES
)

BOARD = Board(
    name="slo",
    title="Inference: are the SLOs met?",
    question="The error budget of the platform, and latency at P50, P95 and P99 of histograms beside what the site "
    "promised. Averages are not shown: they hide the slow requests.",
    groups=(
        PanelGroup(
            title="The error budget",
            runbook="error-budget",
            panels=(
                Panel(
                    title="Share of the error budget that is left, at the pace of 3 days",
                    good="Above 0.5.",
                    do="Below 0 the promise is broken when it goes on: no risky change until it recovers.",
                    unit=SHARE,
                    queries=lines(queries.budget_left("3d"), "left"),
                    shape=Shape.FIGURE,
                ),
                Panel(
                    title="Share of requests without an error of the platform, 3 days",
                    good="At least the promised share.",
                    do="The gateway's dashboard has which model and which status.",
                    unit=SHARE,
                    queries=lines(f"1 - {queries.error_ratio('3d')}", "answered"),
                    shape=Shape.FIGURE,
                ),
                Panel(
                    title="Promised share, `monitoring.availability_percent`",
                    good="What users were promised.",
                    do="Change it in the site's file; budget and alerts follow.",
                    unit=SHARE,
                    queries=lines(queries.AVAILABILITY, "promised"),
                    shape=Shape.FIGURE,
                ),
                Panel(
                    title="Requests per second that engines answer",
                    good="Up to the declared load.",
                    do="Compare with `models.NAME.load.requests_per_s`.",
                    unit=REQUESTS_PER_S,
                    queries=lines(queries.requests_per_s(OF_MODEL, by=(), window=WINDOW), "answered"),
                    shape=Shape.FIGURE,
                ),
                Panel(
                    title="How many times faster than allowed is the budget used?",
                    good="Below 1. An alert pages from 14.4 on, the dashed line: 2 % of the budget in an hour.",
                    do="Which model, which status: the gateway's dashboard; then its runbook.",
                    unit=COUNT,
                    queries=(
                        *(
                            Query(expression=queries.burn_rate(window), legend=f"over {window}")
                            for window in _BURN_WINDOWS
                        ),
                        Query(expression=f"vector({_PAGES_FROM})", legend="pages", is_target=True),
                    ),
                ),
            ),
        ),
        PanelGroup(title="Time to the first token", panels=_TTFT),
        PanelGroup(title="Time between tokens", panels=_ITL),
        PanelGroup(
            title="Whole answers",
            panels=(
                quantile_panel(
                    "From request to last token, by model",
                    queries.e2e_s,
                    OF_MODEL,
                    "model",
                    good="Tokens of an answer times the time between them, plus the first.",
                    do="Long because answers are long, or because tokens are slow: both are on this page.",
                ),
                _held_to(
                    "Time per token of a request, by model",
                    queries.tpot_s,
                    "tpot",
                    95,
                    good="Below its dashed line, where the site declares one.",
                    do="As for the time between tokens.",
                    runbook="slow-model",
                ),
            ),
        ),
        PanelGroup(
            title="By tier",
            panels=(
                quantile_panel(
                    "Time to the first token of a stream, by tier, at the gateway",
                    queries.tier_ttft_s,
                    queries.REQUESTS,
                    "tier",
                    good="The tier with the higher priority is faster, and stays so under load.",
                    do="Alike under load: priorities do not differ, or no request waits.",
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Share of requests that end with an error, by tier",
                    good="0 for tiers from 0 on; those below 0 make room for the others.",
                    do="Refusals of a tier from 0 on: the model is overloaded.",
                    unit=SHARE,
                    queries=lines(queries.tier_error_share(window=WINDOW), "{{tier}}"),
                    runbook="model-overloaded",
                ),
            ),
        ),
        PanelGroup(
            title="By tenant, at the gateway",
            panels=(
                quantile_panel(
                    "Time to the first token of a stream, by tenant",
                    queries.tenant_ttft_s,
                    OF_TENANT,
                    "tenant",
                    good="Alike for tenants of one tier and model.",
                    do="One is slower: its prompts are longer, or it sends more at once than others.",
                ),
                quantile_panel(
                    "Time per token of a stream, by tenant",
                    queries.tenant_tpot_s,
                    OF_TENANT,
                    "tenant",
                    good="Alike for tenants of one model.",
                    do="Slower for one alone: it reads slowly, or its network does.",
                ),
                Panel(
                    title="Share of its requests that end with an error, by tenant",
                    good="0.",
                    do="One alone: its requests or its tier. All: the model.",
                    unit=SHARE,
                    queries=lines(queries.error_share("tenant", OF_TENANT, window=WINDOW), "{{tenant}}"),
                    runbook="model-overloaded",
                ),
            ),
        ),
    ),
)
