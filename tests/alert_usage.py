"""Faults of what keeps usage, and hours whose rows are not what engines counted."""

from __future__ import annotations

from tests.alert_series import CHORE_FAILED, LINES_DROPPED, hour_tokens, of_ledger, of_shipper
from tests.alert_site import Case, constant, engine, grows, target

# The first hour has ended, and its gap has stayed for longer than the alert waits.
_MINUTES = 115
_OUTPUT = {"model": "code", "kind": "output"}

CASES = (
    Case(alert="LedgersDown", change={target("ledger", "ledger-a"): None}, shown="0"),
    # A tenth of the tokens are in no row; none are; rows have more than engines.
    Case(
        alert="UsageGap",
        change={hour_tokens("output"): constant(54_000)},
        labels=_OUTPUT,
        shown="10%",
        minutes=_MINUTES,
    ),
    Case(
        alert="UsageGap",
        change={hour_tokens("input"): None},
        labels={"model": "code", "kind": "input"},
        shown="100%",
        minutes=_MINUTES,
    ),
    Case(
        alert="UsageGap",
        change={hour_tokens("output"): constant(66_000)},
        labels=_OUTPUT,
        shown="-10%",
        minutes=_MINUTES,
    ),
    # A canary, half of whose tokens are in no row. The stable revision has its own.
    Case(
        alert="UsageGap",
        change={
            engine("vllm:generation_tokens_total", pod="code--x-a"): grows(1_000),
            hour_tokens("output", "code--x"): constant(30_000),
        },
        labels={"model": "code--x", "kind": "output"},
        shown="50%",
        minutes=_MINUTES,
    ),
    Case(
        alert="UsageNotReconciled",
        change={of_ledger("hour_start_timestamp_seconds"): constant(-3600)},
        shown="2.25",
        minutes=135,
    ),
    Case(
        alert="UsageBehind",
        change={of_shipper("oldest_seconds"): constant(600)},
        labels={"pod": "envoy-a"},
        shown="10",
    ),
    Case(
        alert="UsageLost",
        change={LINES_DROPPED: grows(6)},
        labels={"pod": "envoy-a"},
        shown="60",
    ),
    Case(alert="LedgerChoreFails", change={CHORE_FAILED: grows(1)}, labels={"chore": "partitions"}, shown="10"),
    Case(
        alert="UsageUnreadable",
        change={of_shipper("unreadable_lines_total"): grows(1)},
        labels={"pod": "envoy-a"},
        shown="60",
        minutes=60,
    ),
    Case(alert="UsageUnpriced", change={of_ledger("unpriced_rows_total"): grows(1)}, shown="60", minutes=60),
    Case(
        alert="PricesUnusable",
        change={of_ledger("prices_unusable"): constant(1)},
        labels={"pod": "ledger-a"},
        shown="1",
    ),
)
