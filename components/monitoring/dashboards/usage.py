"""What is billed: whether it is what engines counted."""

from __future__ import annotations

from components.monitoring import reconciliation
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query
from components.monitoring.dashboards.vocabulary import COUNT, MODEL, lines

_NO_LEDGER = "the lab's site has no ledger"

BOARD = Board(
    name="usage",
    title="Inference: what is billed?",
    question="Whether the ledger's rows are what the engines counted; of sites with `usage`. The variable `model` "
    "chooses revisions here.",
    groups=(
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
    ),
)
