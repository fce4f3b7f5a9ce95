"""What the boards share: the variables in their queries, and panels of one figure at three quantiles."""

from __future__ import annotations

from collections.abc import Callable

from components.monitoring import queries
from components.monitoring.dashboards.board import Panel, Query

# Grafana's: at least four times the seconds between two scrapes.
WINDOW = "$__rate_interval"
# All of the time that a dashboard shows.
SHOWN = "$__range"
MODELS, TENANTS = "$model", "$tenant"
MODEL = f'model=~"{MODELS}"'
OF_MODEL = f"{queries.ENGINES}, {MODEL}"
OF_PICKER = f"{queries.PICKERS}, {MODEL}"
OF_TENANT = f'{queries.REQUESTS}, tenant=~"{TENANTS}"'
PRICE = "$gpu_hour_price"

SECONDS = "s"
SHARE = "percentunit"
COUNT = "short"
BYTES = "bytes"
BYTES_PER_S = "Bps"
REQUESTS_PER_S = "reqps"
CELSIUS = "celsius"
WATTS = "watt"
TOKENS_PER_S = "suffix: tokens/s"
MONEY = "suffix: per million tokens"
MONEY_PER_HOUR = "suffix: per hour"


def quantile_panel(
    title: str,
    seconds: Callable[..., str],
    where: str,
    by: str,
    *,
    good: str,
    do: str,
    runbook: str | None = None,
    not_in_lab: str = "",
) -> Panel:
    """P50, P95 and P99 of a latency, for each value of the label `by`. seconds: the function of `queries`."""
    return Panel(
        title=title,
        good=good,
        do=do,
        unit=SECONDS,
        queries=tuple(
            Query(expression=seconds(share, where, by=(by,), window=WINDOW), legend=f"{{{{{by}}}}} P{share * 100:g}")
            for share in (0.5, 0.95, 0.99)
        ),
        runbook=runbook,
        not_in_lab=not_in_lab,
    )


def lines(expression: str, legend: str) -> tuple[Query, ...]:
    """The one query of a panel."""
    return (Query(expression=expression, legend=legend),)
