"""A bill of the ledger by FOCUS's own validator, with all its rules: what it finds, and what it does not look at."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.ledger import focus
from services.ledger.bills import GpuDay
from tests.exhaustive.focus import Outcome, validated
from tests.unit.services.ledger_rig import DECEMBER
from tests.unit.services.test_ledger_bills import MONTH, book, row, used, version

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.35")]

# It takes both parts of "null, or as its invoice" for rules of their own; what they are parts of passes.
FALSE_FINDING, WHOLE = "InvoiceId-C-004-C", "InvoiceId-C-003-C"
# Not looked at by the validator: rules about other providers, and those that it has no check for.
NOT_LOOKED_AT = {
    "rule not applicable",
    "upstream dependency was skipped",
    "Rule skipped - marked as MAY/OPTIONAL and not enforced",
    "Rule skipped - all child rules were skipped",
    "Rule skipped - validation is dynamic and cannot be pre-generated",
    "Rule skipped - CheckDecimalValue validation is not yet implemented",
}
LEAST_PASSED = 225


def billed(tmp_path: Path) -> list[dict[str, str]]:
    """Two days of a tenant, a model without a price, none at all, and idle GPUs."""
    prices = book(tmp_path, version(0))
    rows = [row(), replace(row(), started_us=(DECEMBER + 86_400) * 10**6), row(model="new"), row(model=None)]
    start = datetime.fromtimestamp(DECEMBER, UTC)
    idle = [
        GpuDay(day=start, revision=name, carried=carried, seconds=5000, price=5_555_555_556, currency="EUR")
        for name, carried in (("chat", 1000), ("chat--for-search", 0))
    ]
    made = focus.rows_of("search", MONTH, used(prices, *rows), prices.contents(), idle, currency="EUR", issuer="site")
    file = tmp_path / "bill.csv"
    file.write_text(focus.as_csv(made))
    with file.open() as text:
        return list(csv.DictReader(text))


def outcome_of(rows: list[dict[str, str]], folder: Path) -> Outcome:
    folder.mkdir()
    file = folder / "bill.csv"
    with file.open("w") as text:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return validated(file, folder)


def test_a_bill_passes_every_rule_that_the_validator_looks_at(tmp_path: Path) -> None:
    outcome = outcome_of(billed(tmp_path), tmp_path / "run")
    assert outcome.failed == {FALSE_FINDING}
    assert WHOLE in outcome.passed
    assert len(outcome.passed) >= LEAST_PASSED
    assert set(outcome.skipped.values()) <= NOT_LOOKED_AT


def test_a_bill_that_is_wrong_is_found(tmp_path: Path) -> None:
    """A currency that is none, and a cost that is missing."""
    rows = billed(tmp_path)
    rows[0] |= {"BillingCurrency": "EURO"}
    rows[1] |= {"BilledCost": ""}
    failed = outcome_of(rows, tmp_path / "run").failed
    assert {rule.partition("-")[0] for rule in failed} >= {"BillingCurrency", "BilledCost"}
