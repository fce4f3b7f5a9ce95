"""Prices, costs and bills: every figure a whole number, every sum exact, one rounding at the end."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.specs.usage import UsageSpec
from components.tenants.ledger import price_book
from services.failure import ServiceError
from services.ledger import focus
from services.ledger.bills import Bill, UsedInDay, bill_of
from services.ledger.currencies import rounded
from services.ledger.lines import UsageRow, read
from services.ledger.months import Month
from services.ledger.prices import KINDS, UNPRICED, PriceBook, PriceVersion, book_of
from tests.unit.services.ledger_rig import BOOK, DECEMBER, JANUARY, line, written
from tests.unit.services.postgres_rig import ROOT

pytestmark = pytest.mark.row("000.32", "004.13", "004.17")

MONTH = Month.of(DECEMBER)


def book(folder: Path, *versions: dict[str, Any], currency: str = "EUR") -> PriceBook:
    file = folder / "prices.json"
    file.write_text(json.dumps({"currency": currency, "versions": list(versions)}))
    return book_of(file)


def version(start: int, **prices: int) -> dict[str, Any]:
    chat = {"input": 200_000, "cached_input": 50_000, "output": 800_000} | prices
    return {"from": start, "models": {"chat": chat}, "tiers": {"batch": 500_000, "fine": 333_333}}


def row(**fields: Any) -> UsageRow:
    (own,) = read(written(line(started=f"{DECEMBER}.0", **fields)), earliest_us=0, latest_us=2**60).rows
    return own


def used(prices: PriceBook, *rows: UsageRow) -> list[UsedInDay]:
    """As the ledger's table sums them, without a sum."""
    days = []
    for own in rows:
        price = prices.price(own)
        day = datetime.fromtimestamp(own.started_us // 1_000_000, UTC).replace(hour=0, minute=0, second=0)
        days.append(
            UsedInDay(
                day=day,
                key=own.key,
                model=own.model,
                tier=own.tier,
                price_version=price.version,
                requests=1,
                failed=int(own.failed),
                input_tokens=own.input_tokens,
                cached_input_tokens=own.cached_input_tokens,
                output_tokens=own.output_tokens,
                cost_pico=price.cost_pico,
            )
        )
    return days


def billed(prices: PriceBook, *rows: UsageRow) -> Bill:
    return bill_of("search", MONTH, used(prices, *rows), prices.contents(), currency="EUR", final=True)


def test_a_tiers_factor_cached_tokens_and_a_change_of_prices_are_lines_of_their_own(
    tmp_path: Path,
) -> None:
    middle = DECEMBER + 15 * 86_400
    prices = book(tmp_path, version(0), version(middle, output=900_000))
    first, last = row(), replace(row(), started_us=middle * 1_000_000 - 1)
    later, cheap = replace(row(), started_us=middle * 1_000_000), row(objective="batch.chat")
    shown = billed(prices, first, last, later, cheap).as_json()
    texts = [
        (own["tier"], own["kind"], own["quantity"], own["unit_price"], own["cost"])
        for own in sorted(shown["lines"], key=lambda own: (own["tier"], own["kind"], own["unit_price"]))
    ]
    assert texts == [
        ("batch", "cached_input", 400, "0.025", "0.00001"),
        ("batch", "input", 600, "0.10", "0.00006"),
        ("batch", "output", 100, "0.40", "0.00004"),
        ("interactive", "cached_input", 400, "0.05", "0.00002"),
        ("interactive", "cached_input", 800, "0.05", "0.00004"),
        ("interactive", "input", 600, "0.20", "0.00012"),
        ("interactive", "input", 1200, "0.20", "0.00024"),
        ("interactive", "output", 200, "0.80", "0.00016"),
        ("interactive", "output", 100, "0.90", "0.00009"),
    ]
    assert shown["totals"] == [{"currency": "EUR", "exact": "0.00078", "total": "0.00"}]
    assert (shown["requests"], shown["start"], shown["end"]) == (
        4,
        "2026-12-01T00:00:00+00:00",
        "2027-01-01T00:00:00+00:00",
    )


def test_a_price_with_a_factor_is_rounded_half_up_to_a_micro_unit(tmp_path: Path) -> None:
    (own,) = book(tmp_path, version(0, input=3, output=1)).contents().values()
    assert [own.unit_price("", "chat", tier, "input") for tier in ("", "batch", "fine")] == [3, 2, 1]
    assert [own.unit_price("", "chat", tier, "output") for tier in ("", "batch", "fine")] == [1, 1, 0]
    assert own.unit_price("", "other", "", "input") == 0


@pytest.mark.parametrize(
    ("pico", "currency", "text"),
    [
        (0, "EUR", "0.00"),
        (4_999_999_999, "EUR", "0.00"),
        (5_000_000_000, "EUR", "0.01"),
        (995_000_000_000, "EUR", "1.00"),
        (10**18, "EUR", "1000000.00"),
        (499_999_999_999, "JPY", "0"),
        (500_000_000_000, "JPY", "1"),
        (1_234_500_000_000, "JPY", "1"),
        (1_234_500_000_000, "KWD", "1.235"),
        (1_234_549_999_999, "CLF", "1.2345"),
    ],
)
def test_the_total_is_rounded_half_up_once_to_a_unit_of_its_currency(pico: int, currency: str, text: str) -> None:
    assert rounded(pico, currency) == text


def test_many_costs_below_a_cent_add_up(tmp_path: Path) -> None:
    """Each is a 45th of a cent: rounded by itself it would be nothing."""
    assert billed(book(tmp_path, version(0)), *[row()] * 4500).as_json()["totals"][0]["total"] == "0.99"


@pytest.mark.parametrize("seed", range(60))
def test_a_bill_recomputes_from_rows_and_versions(tmp_path: Path, seed: int) -> None:
    """Independently, by fractions: any prices, factors, changes of them, and tokens."""
    choose = random.Random(seed)  # noqa: S311 - a repeatable choice
    starts = sorted(choose.sample(range(DECEMBER - 86_400, JANUARY), choose.randint(1, 4)))
    versions: list[dict[str, Any]] = [
        {
            "from": start,
            "models": {
                model: {kind: choose.choice((0, 1, 7, 200_000, 10**9)) for kind in ("input", "cached_input", "output")}
                for model in choose.sample(("chat", "embed", "code"), 2)
            },
            "tiers": {"batch": choose.randint(0, 3_000_000)},
        }
        for start in starts
    ]
    prices = book(tmp_path, *versions)
    rows = []
    for _ in range(choose.randint(0, 40)):
        tokens = choose.randint(0, 10 ** choose.randint(0, 9))
        own = row(
            model=choose.choice(("chat", "embed", "code")),
            objective=choose.choice(("batch.chat", "interactive.chat", None)),
            client=f"search.k{choose.randint(0, 2)}",
            input_tokens=tokens,
            cached_input_tokens=choose.randint(0, tokens),
            output_tokens=choose.randint(0, 10**6),
        )
        rows.append(replace(own, started_us=choose.randrange(DECEMBER * 10**6, JANUARY * 10**6)))
    expected = Fraction()
    for own in rows:
        held = [entry for entry in versions if entry["from"] * 10**6 <= own.started_us][-1:]
        listed = held[0]["models"].get(own.model) if held else None
        if listed:
            factor = Fraction(held[0]["tiers"].get(own.tier, 10**6), 10**6)
            for kind, quantity in (
                ("input", own.input_tokens - own.cached_input_tokens),
                ("cached_input", own.cached_input_tokens),
                ("output", own.output_tokens),
            ):
                unit = int(listed[kind] * factor + Fraction(1, 2))
                expected += Fraction(unit, 10**6) * Fraction(quantity, 10**6)
        else:
            assert prices.price(own).version == UNPRICED
    bill = billed(prices, *rows)
    assert sum(bill.totals().values()) == expected * 10**12
    assert sum(Fraction(own["cost"]) for own in bill.as_json()["lines"]) == expected
    days = focus.rows_of("search", MONTH, used(prices, *rows), prices.contents(), currency="EUR", issuer="site")
    assert sum(Fraction(own["BilledCost"]) for own in days) == expected


def test_a_model_without_a_price_is_on_the_bill(tmp_path: Path) -> None:
    assert billed(book(tmp_path)).as_json()["totals"] == [{"currency": "EUR", "exact": "0.00", "total": "0.00"}]
    shown = billed(book(tmp_path), row(model="new")).as_json()
    assert {(own["unit_price"], own["cost"], own["price_version"]) for own in shown["lines"]} == {
        (None, "0.00", "none")
    }
    assert shown["totals"] == [{"currency": "EUR", "exact": "0.00", "total": "0.00"}]


def test_each_currency_has_a_total(tmp_path: Path) -> None:
    euros, dollars = book(tmp_path, version(0)), book(tmp_path, version(0), currency="USD")
    versions = euros.contents() | dollars.contents()
    assert len(versions) == 2
    bill = bill_of(
        "search", MONTH, [*used(euros, row()), *used(dollars, row(), row())], versions, currency="EUR", final=True
    )
    assert bill.totals() == {"EUR": 220_000_000, "USD": 440_000_000}


def test_a_bill_that_is_not_what_its_rows_cost_is_refused(tmp_path: Path) -> None:
    prices = book(tmp_path, version(0))
    (day,) = used(prices, row())
    with pytest.raises(ServiceError, match=r"comes to 0.00022, and its rows cost 0.000220000001; fix: compare"):
        bill_of("a", MONTH, [replace(day, cost_pico=220_000_001)], prices.contents(), currency="EUR", final=True)


def test_a_csv_has_every_line_the_total_and_no_formula(tmp_path: Path) -> None:
    text = billed(book(tmp_path, version(0)), row(), row(model="=HYPERLINK(1)")).as_csv()
    cells = list(csv.DictReader(io.StringIO(text)))
    assert [own["kind"] for own in cells if own["model"] == "chat"] == ["input", "cached_input", "output"]
    assert {own["model"] for own in cells} == {"chat", "'=HYPERLINK(1)", ""}
    assert (cells[-1]["kind"], cells[-1]["cost"], cells[-1]["currency"]) == ("total", "0.00", "EUR")


# FOCUS 1.2: what every dataset must have, or where it has units, prices, price lists and sub accounts (rules
# CostAndUsage-D-... of model-1.2.0.1.json, in focus-validator 2.2.1).
MUST = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd"),
    *("ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice"),
    *("EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity"),
    *("PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName", "SkuId", "SkuMeter"),
    *("SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName"),
)
MAY_BE_NULL = {"ChargeClass", "CommitmentDiscountStatus", "SkuPriceDetails", "x_Tier"}


def test_focus_rows_have_what_its_version_demands(tmp_path: Path) -> None:
    prices = book(tmp_path, version(0))
    rows = [row(), replace(row(), started_us=(DECEMBER + 86_400) * 10**6), row(model="new"), row(model=None, tier="")]
    days = used(prices, *rows)
    own = list(
        csv.DictReader(
            io.StringIO(
                focus.as_csv(focus.rows_of("search", MONTH, days, prices.contents(), currency="EUR", issuer="our-site"))
            )
        )
    )
    assert len(own) == 12
    assert set(MUST) <= set(own[0])
    for entry in own:
        assert {name for name, value in entry.items() if not value} <= MAY_BE_NULL
        product = Fraction(entry["ListUnitPrice"]) * Fraction(entry["PricingQuantity"])
        assert product == Fraction(entry["ListCost"]) == Fraction(entry["BilledCost"])
        start, end = (datetime.fromisoformat(entry[f"ChargePeriod{edge}"]) for edge in ("Start", "End"))
        assert end - start == timedelta(days=1)
        assert entry["BillingPeriodStart"] == "2026-12-01T00:00:00Z"
        assert Fraction(entry["ConsumedQuantity"]) == Fraction(entry["PricingQuantity"]) * 10**6


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"currency": "EUR"}', "KeyError"),
        ('{"currency": "Euro", "versions": [{"from": 0, "models": {}}]}', "currency"),
        ('{"currency": "EUR", "versions": [{"from": 0, "models": {"chat": {"input": 0.2}}}]}', "models.chat.input"),
        ('{"currency": "EUR", "versions": [{"from": 0, "models": {}, "tiers": {"batch": -1}}]}', "tiers.batch"),
    ],
)
def test_a_price_book_that_is_none_is_refused_with_its_place(tmp_path: Path, content: str, part: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(content)
    with pytest.raises(ServiceError, match=rf"prices.json cannot be used; got .*{part}.*fix: "):
        book_of(file)


def test_a_version_is_named_after_all_that_is_in_it(tmp_path: Path) -> None:
    books = [
        book(tmp_path, version(0)),
        book(tmp_path, version(1)),
        book(tmp_path, version(0, output=1)),
        book(tmp_path, version(0) | {"tiers": {}}),
        book(tmp_path, version(0), currency="USD"),
    ]
    assert len({next(iter(own.contents())) for own in books}) == len(books)
    assert list(book(tmp_path, *BOOK["versions"]).contents()) == list(book(tmp_path, *BOOK["versions"]).contents())


@pytest.mark.parametrize(
    ("text", "number"), [("2026-12", DECEMBER), ("2027-01", JANUARY), ("2026-13", 0), ("2026-1", 0), ("x", 0)]
)
def test_months_are_of_utc(text: str, number: int) -> None:
    month = Month.named(text)
    assert ((month and month.start.timestamp()) or 0) == number
    assert month is None or str(month) == text


def test_the_example_of_the_page_comes_to_what_it_states() -> None:
    page = (ROOT / "docs" / "how-to" / "usage-and-bills.md").read_text()
    site = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    version = json.loads(price_book(UsageSpec(**site["usage"])))["versions"][0]
    priced = PriceVersion.model_validate({**version, "currency": "EUR"})
    (model,) = priced.models
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    costs = []
    for kind, quantity, price, cost in rows:
        unit = priced.unit_price("", model, "batch", kind)
        assert unit == round(float(price) * 1_000_000)
        costs.append(int(quantity.replace(",", "")) * unit)
        assert rounded(costs[-1], "EUR") == cost
    assert [kind for kind, *_ in rows] == list(KINDS)
    assert f"| bill | | | {rounded(sum(costs), 'EUR')} |" in page
