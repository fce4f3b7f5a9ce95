"""Bounds of what the ledger may lose or add, by which a benchmark fails."""

from __future__ import annotations

import pytest

from benchmarks.ledger_faults import Load, exceeded
from benchmarks.reconciliation import tokens_past_the_bound
from services.ledger import variables

pytestmark = pytest.mark.row("000.35", "opening 17")


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
