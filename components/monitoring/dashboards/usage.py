"""What is billed: to whom, whether it is what engines counted, and whether it arrives."""

from __future__ import annotations

from components.monitoring import queries, reconciliation
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query, Shape
from components.monitoring.dashboards.vocabulary import (
    BYTES,
    COUNT,
    MODEL,
    REQUESTS_PER_S,
    SECONDS,
    TENANTS,
    WINDOW,
    lines,
)

_NO_LEDGER = "the lab's site has no ledger"
_LEDGERS, _SHIPPERS = 'job="ledger"', 'job="usage-shipper"'
AMOUNT = "suffix: of the currency"
ROWS_PER_S = "suffix: rows/s"


def _of_month(what: str, *more: str) -> str:
    """Both ledgers have the same."""
    chosen = f'{_LEDGERS}, {MODEL}, tenant=~"{TENANTS}"'
    return queries.highest(f"inference_usage_month_{what}", chosen, by=("tenant", "model", "tier", *more))


def _of_ledger(title: str, *, good: str, do: str, unit: str, queries: tuple[Query, ...]) -> Panel:
    return Panel(title=title, good=good, do=do, unit=unit, queries=queries, not_in_lab=_NO_LEDGER)


BOARD = Board(
    name="usage",
    title="Inference: what is billed?",
    question="What tenants used since the month of UTC began and what that costs, whether it is what the engines "
    "counted, and whether it arrives; of sites with `usage`. Prices are the site's, not that of a GPU hour.",
    groups=(
        PanelGroup(
            title="Who used what, since the month began?",
            panels=(
                Panel(
                    title="Cost by tenant, model and tier",
                    good="Each tenant within what was agreed with it.",
                    do="One that grows faster than agreed: set a budget. `sitectl bill` has the exact sums.",
                    unit=AMOUNT,
                    queries=lines(_of_month("cost", "currency"), "{{tenant}} {{model}} {{tier}} {{currency}}"),
                    shape=Shape.STACKED,
                    not_in_lab=_NO_LEDGER,
                ),
                Panel(
                    title="Tokens by tenant, model and tier",
                    good="Each tenant as agreed with it.",
                    do="The same. `(others)` are those with the fewest tokens, of a site with more than a thousand "
                    "lines.",
                    unit=COUNT,
                    queries=lines(_of_month("tokens"), "{{tenant}} {{model}} {{tier}}"),
                    shape=Shape.STACKED,
                    not_in_lab=_NO_LEDGER,
                ),
            ),
        ),
        PanelGroup(
            title="Is it what the engines counted?",
            runbook="usage-gap",
            panels=(
                Panel(
                    title="Tokens of an hour that engines counted and no row has, by revision and kind",
                    good="Within its dashed lines, which abandoned requests and those at the hour's edges allow.",
                    do="Above: tokens are given away; below: some are billed that no engine made. A figure is of the "
                    "full hour before it.",
                    unit=COUNT,
                    queries=(
                        *lines(f"{reconciliation.GAP}{{{MODEL}}}", "{{model}} {{kind}}"),
                        *(
                            Query(
                                expression=f"{sign}{reconciliation.ALLOWED}{{{MODEL}}}",
                                legend="{{model}} {{kind}} " + name,
                                is_target=True,
                            )
                            for sign, name in (("", "most"), ("-", "least"))
                        ),
                    ),
                    not_in_lab=_NO_LEDGER,
                ),
                Panel(
                    title="Hours since the last one that was compared ended",
                    good="Below 1.1: an hour is compared some minutes after its end.",
                    do="The ledgers or their database are away: `sitectl docs usage-behind`.",
                    unit=COUNT,
                    queries=lines(reconciliation.unmeasured_hours(), "hours"),
                    not_in_lab=_NO_LEDGER,
                ),
            ),
        ),
        PanelGroup(
            title="Does usage arrive?",
            runbook="usage-behind",
            panels=(
                _of_ledger(
                    "Rows that arrive (per second)",
                    good="As many as requests end; those that were known are sent again after a failure.",
                    do="None while there are requests: shippers or ledgers are away.",
                    unit=ROWS_PER_S,
                    queries=lines(
                        queries.rate("inference_usage_rows_total", _LEDGERS, by=("result",), window=WINDOW),
                        "{{result}}",
                    ),
                ),
                _of_ledger(
                    "Time from a batch's arrival to its commit (P95)",
                    good="Below 0.3 s.",
                    do="Above: the database is slow; lines wait in the Envoy pods.",
                    unit=SECONDS,
                    queries=lines(
                        queries.quantile(0.95, "inference_usage_intake_seconds", _LEDGERS, window=WINDOW), "P95"
                    ),
                ),
                _of_ledger(
                    "Since the oldest line that is not confirmed, by Envoy pod",
                    good="Some seconds.",
                    do="Leave the Envoy pods as they are: what waits is on their nodes alone.",
                    unit=SECONDS,
                    queries=lines(
                        queries.highest("inference_usage_shipper_oldest_seconds", _SHIPPERS, by=("pod",)), "{{pod}}"
                    ),
                ),
                _of_ledger(
                    "Bytes of lines that are not confirmed, by Envoy pod",
                    good="Some kilobytes.",
                    do="The node's disk has to hold them, until the ledger takes them.",
                    unit=BYTES,
                    queries=lines(
                        queries.highest("inference_usage_shipper_bytes_behind", _SHIPPERS, by=("pod",)), "{{pod}}"
                    ),
                ),
                _of_ledger(
                    "Lines that are no row, and rows without a price, in an hour",
                    good="0.",
                    do="The ledger's log has the reason; a model without a price needs a version that has it.",
                    unit=COUNT,
                    queries=(
                        Query(
                            expression=queries.growth(
                                "inference_usage_shipper_unreadable_lines_total", _SHIPPERS, window="1h"
                            ),
                            legend="unreadable",
                        ),
                        Query(
                            expression=queries.growth("inference_usage_unpriced_rows_total", _LEDGERS, window="1h"),
                            legend="unpriced",
                        ),
                    ),
                ),
                _of_ledger(
                    "Attempts that the ledger did not confirm (per second), by reason",
                    good="0, or no data.",
                    do="503: its database is away. 401 or 403: the token is another one. Others: it is not reached.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.or_zero(
                            queries.rate(
                                "inference_usage_shipper_failures_total", _SHIPPERS, by=("reason",), window=WINDOW
                            ),
                            _SHIPPERS,
                        ),
                        "{{reason}}",
                    ),
                ),
            ),
        ),
    ),
)
