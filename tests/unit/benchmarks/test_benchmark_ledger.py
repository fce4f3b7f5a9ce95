"""Bounds of what the ledger may lose or add, by which a benchmark fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.ledger_faults import Load, exceeded
from benchmarks.reconciliation import tokens_past_the_bound
from components.specs.database import ROW_BYTES
from services.ledger import variables

pytestmark = pytest.mark.row("000.35", "opening 17")

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("output", "duration_ms", "past"),
    [
        # Six events were read by 70 ms at the earliest; of 30 ms after that, three tokens.
        (6, 100, -3),
        (9, 100, 0),
        (10, 100, 1),
        # It ended before its client can have left.
        (6, 60, 0),
        (7, 60, 1),
    ],
)
def test_an_abort_is_billed_by_its_delay_at_most(output: int, duration_ms: int, past: int) -> None:
    row = {"output_tokens": output, "duration_ms": duration_ms}
    assert tokens_past_the_bound(row, 6, ttft_ms=20, itl_ms=10) == past


def test_a_killed_envoy_may_lose_what_ended_within_the_time_that_it_keeps_lines() -> None:
    at = [0.0, 0.1, 0.2, 0.9, 1.05, 1.5, 4.0]
    assert Load(ended=[variables.FLUSH_S * moment for moment in at]).unwritten == 4
    assert Load().unwritten == 0


@pytest.mark.parametrize(
    ("more", "beyond"),
    [
        ({}, False),
        ({"rows lost": 4}, True),
        ({"rows with other tokens": 1}, True),
        ({"doubles": 1}, True),
        ({"ended whole": 0}, True),
    ],
)
def test_a_fault_is_beyond_its_bound_by_any_row_too_many(more: dict[str, int], beyond: bool) -> None:
    row = {"ended whole": 300, "rows lost": 3, "bound of rows": 3, "rows with other tokens": 0, "doubles": 0}
    assert exceeded(row | more) is beyond


def test_the_page_sizes_a_ledger_by_the_recorded_figures() -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results" / "ledger_intake.json").read_text())
    intake, on_disk = (table["rows"] for table in recorded["tables"])
    (batches,) = [row for row in intake if (row["rows per batch"], row["shippers at once"]) == (1500, 4)]
    size = on_disk[0]["bytes per row"]
    assert size < ROW_BYTES, "what warnings count with is on the safe side"
    page = (ROOT / "docs" / "how-to" / "usage-and-bills.md").read_text()
    for rate in (1_000, 100_000):
        rows = rate * 86_400
        cores = [rate * batches[f"{part} us of CPU per row"] / 1e6 for part in ("ledger", "PostgreSQL")]
        ledger, postgresql = (f"{share:.{1 if share > 1 else 2}f} cores" for share in cores)
        months = rows * size * 396 / 1e12
        disk = f"{rows * size / 1e9:,.0f} GB | {months:,.0f} TB"
        assert f"| {rate:,} | {rows / 1e6:,.0f} million | {disk} | {ledger} | {postgresql} |" in page
