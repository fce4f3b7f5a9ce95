"""Idle GPUs on bills: days that open and close in a real PostgreSQL, and sums that are exact whatever they are of."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from components.specs.usage import DedicatedGpus, UsageSpec
from components.tenants.ledger import price_book
from services.database import Database
from services.ledger import focus
from services.ledger.bills import GpuDay, bill_of
from services.ledger.currencies import rounded
from services.ledger.idle import DAY_S, SOUND_S, keep_days
from services.ledger.months import Month
from services.ledger.tables import KEPT
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import BOOK, DECEMBER, Ledger, line
from tests.unit.services.postgres_rig import ROOT, Server, setting
from tests.unit.services.test_ledger_bills import MONTH, book, row, used, version

pytestmark = pytest.mark.row("000.04", "004.17", "opening 15")

CARRIED, PRICE, OWN, WHOLE = 1_000_000, 5_000_000, "chat--for-own", "chat--for-pair"
IDLE: dict[str, Any] = {
    "chat": {"carried": CARRIED, "price": PRICE, "callers": ["sales", "search", "third"]},
    OWN: {"carried": CARRIED, "price": 2 * PRICE, "callers": ["own"]},
    # Dedicated, and billed by the hour.
    WHOLE: {"carried": 0, "price": PRICE, "callers": ["one", "two"]},
}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path) as running:
        yield running


def with_idle(ledger: Ledger, idle: dict[str, Any]) -> None:
    """The book that `up` writes, read by a ledger that starts."""
    setting(ledger.folder, "--prices-file").write_text(json.dumps(BOOK | {"idle": idle}))
    ledger.end()
    ledger.start()
    ledger.wait_ready()


def closed(server: Server, sound_s: float = SOUND_S) -> dict[str, int | None]:
    """What a pass of the ledger makes of the days before today, by revision; none is billed from now on."""

    async def keep() -> None:
        database = Database(lambda: server.url, KEPT)
        await keep_days(database, {}, "EUR", sound_s=sound_s)
        await database.close()

    asyncio.run(keep())
    return {
        row["revision"]: row["seconds"] for row in server.rows("SELECT * FROM idle_by_day WHERE day < now() ORDER BY 2")
    }


def finals(ledger: Ledger, tenant: str, month: Month) -> bool:
    with ledger.client() as client:
        return bool(client.get(f"/v1/bills/{tenant}/{month}").json()["final"])


def idle_lines(ledger: Ledger, tenant: str, month: Month, kind: str = "idle") -> list[tuple[str, int, str, str]]:
    with ledger.client() as client:
        bill = client.get(f"/v1/bills/{tenant}/{month}").json()
    lines = [own for own in bill["lines"] if own["kind"] == kind]
    return [(own["model"], own["quantity"], own["unit_price"], own["cost"]) for own in lines]


@pytest.mark.processes
def test_a_day_has_what_the_site_set_before_it_and_is_closed_once(both: tuple[Server, Ledger]) -> None:
    """Of the shared replicas 70 % of a day are left for three callers, of the others' own a tenth for one.

    A row that is late changes nothing, and a choice that is taken back holds from the next day on.
    """
    server, ledger = both
    days = "SELECT day, revision, seconds FROM idle_by_day ORDER BY 1, 2"
    # Sums of the month that cannot be made keep no day from being opened.
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(server.sql, "BEGIN; LOCK TABLE spent_by_month; SELECT pg_sleep(120)", check=False)
        with_idle(ledger, IDLE)
        eventually(lambda: len(server.rows(days)) == 3)
        assert not held.done()
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'spent_by_month'::regclass")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    assert {row["day"][:10] for row in server.rows(days)} == {tomorrow.isoformat()}
    assert {row["seconds"] for row in server.rows(days)} == {None}
    past = datetime.now(UTC) - timedelta(days=3)
    day = int(past.replace(hour=0, minute=0, second=0, microsecond=0).timestamp())
    more = {"cached_input_tokens": 0, "output_tokens": 0}
    ledger.send(
        line(started=f"{day}.0", input_tokens=300_000, **more),
        line(started=f"{day + DAY_S - 1}.9", client="own.a", revision=OWN, input_tokens=900_000, **more),
        line(started=f"{day + 9}.0", client="one.a", revision=WHOLE, input_tokens=9, **more),
        line(started=f"{day - 1}.9", input_tokens=1, **more),
        line(started=f"{day + DAY_S}.0", input_tokens=1, **more),
    )
    server.sql(f"UPDATE idle_by_day SET day = to_timestamp({day})")  # noqa: S608 - a number
    # A program that has just started opens the next day, and waits for rows that do.
    with_idle(ledger, IDLE)
    eventually(lambda: len(server.rows(days)) == 6)
    assert closed(server, SOUND_S - 1) == {OWN: None, WHOLE: None, "chat": None}
    seconds = {OWN: DAY_S // 10, WHOLE: DAY_S // 2, "chat": DAY_S * 7 // 10 // 3}
    assert closed(server) == seconds
    ledger.send(line(started=f"{day + 5}.0", input_tokens=300_000, **more))
    assert closed(server) == seconds
    month = Month.of(day)
    part = ("chat", 20_160, "5.00", "0.1008")
    assert [idle_lines(ledger, name, month) for name in ("search", "sales", "third")] == [[part]] * 3
    assert idle_lines(ledger, "own", month) == [(OWN, 8640, "10.00", "0.0864")]
    assert [idle_lines(ledger, name, month, "gpu") for name in ("one", "two")] == [
        [(WHOLE, DAY_S // 2, "5.00", "0.216")]
    ] * 2
    assert idle_lines(ledger, "other", month) == []
    assert len(server.rows(days)) == 3


@pytest.mark.processes
def test_what_was_billed_of_idle_gpus_outlives_the_way_back(both: tuple[Server, Ledger]) -> None:
    """A bill is final once its days are closed; what is open on the way back is billed to none."""
    server, ledger = both
    month = Month.of(time.time()) + -1
    values = "'chat', 1, 5000000, 'EUR', ARRAY['search']"
    day = f"'{month}-02T00:00:00Z'"
    server.sql(f"INSERT INTO idle_by_day VALUES ({day}, {values}, 60), ('{month}-03T00:00:00Z', {values}, NULL)")  # noqa: S608
    assert [finals(ledger, name, month) for name in ("search", "other")] == [False, True]
    ledger.end()
    url = setting(ledger.folder, "--database-url-file")
    back = [sys.executable, "-m", "services.ledger.back", "0005", "--database-url-file", str(url)]
    subprocess.run(back, cwd=ROOT, check=True)
    with_idle(ledger, {})
    assert idle_lines(ledger, "search", month) == [("chat", 60, "5.00", "0.0003")]
    assert finals(ledger, "search", month)


def test_tokens_of_who_pays_for_gpus_are_free_from_the_day_of_that_price(tmp_path: Path) -> None:
    """Of that model only; every other tenant that calls it pays for tokens."""
    gpus = {"carried": 0, "price": PRICE, "callers": ["search"]}
    hourly = version(DECEMBER + DAY_S) | {"dedicated": {OWN: gpus}, "free": {"chat": ["search"], "new": ["search"]}}
    prices = book(tmp_path, version(0), hourly)
    later = replace(row(input_tokens=1000), started_us=(DECEMBER + DAY_S) * 10**6)
    rows = [row(input_tokens=1000), later, replace(later, model="new")]
    assert [prices.price(own).cost_pico > 0 for own in rows] == [True, False, False]
    assert prices.price(replace(later, tenant="sales")).cost_pico > 0
    assert [set(prices.gpus_of(moment)) for moment in (DECEMBER, DECEMBER + DAY_S)] == [set(), {OWN}]
    day = GpuDay(
        day=datetime.fromtimestamp(DECEMBER + DAY_S, UTC),
        revision=OWN,
        carried=0,
        seconds=DAY_S,
        price=PRICE,
        currency="EUR",
    )
    bill = bill_of("search", MONTH, used(prices, *rows), prices.contents(), [day], currency="EUR", final=True)
    (line_of_gpus,) = (own for own in bill.lines if own.kind == "gpu")
    assert (line_of_gpus.quantity, line_of_gpus.cost_pico) == (DAY_S, DAY_S * PRICE)
    assert bill.totals()["EUR"] == prices.price(rows[0]).cost_pico + DAY_S * PRICE
    # A book without such prices has the versions that it had.
    assert book(tmp_path, version(0)).contents().keys() == {next(iter(prices.contents()))}


def idle_of(choose: random.Random) -> list[GpuDay]:
    """A tenant's parts, in the order of days: prices change on some."""
    start = datetime.fromtimestamp(DECEMBER, UTC)
    return [
        GpuDay(
            day=start + timedelta(days=day),
            revision=revision,
            carried=choose.choice((0, CARRIED)),
            seconds=choose.randint(1, DAY_S),
            price=choose.choice((1, 694_444_444, 5_555_555_556)),
            currency="EUR",
        )
        for day in sorted(choose.sample(range(31), choose.randint(0, 31)))
        for revision in choose.sample(("chat", OWN, "code"), choose.randint(1, 3))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_bill_with_idle_gpus_recomputes_to_the_cent(tmp_path: Path, seed: int) -> None:
    """Tokens and seconds together, by fractions: one rounding, and FOCUS rows that come to the same."""
    choose = random.Random(seed)  # noqa: S311 - a repeatable choice
    prices, idle = book(tmp_path, version(0)), idle_of(choose)
    rows = [
        replace(
            row(input_tokens=choose.randint(400, 10**7)), started_us=(DECEMBER + choose.randrange(31) * DAY_S) * 10**6
        )
        for _ in range(choose.randint(0, 20))
    ]
    bill = bill_of("search", MONTH, used(prices, *rows), prices.contents(), idle, currency="EUR", final=True)
    tokens = sum(prices.price(own).cost_pico for own in rows)
    whole = tokens + sum(day.seconds * day.price for day in idle)
    assert bill.totals() == {"EUR": whole}
    shown = bill.as_json()
    assert sum(Fraction(own["cost"]) for own in shown["lines"]) == Fraction(whole, 10**12)
    assert shown["totals"][0]["total"] == rounded(whole, "EUR")
    days = focus.rows_of("search", MONTH, used(prices, *rows), prices.contents(), idle, currency="EUR", issuer="site")
    assert sum(Fraction(own["BilledCost"]) for own in days) == Fraction(whole, 10**12)
    prices_of_id = {(own["SkuPriceId"], own["ListUnitPrice"]) for own in days}
    assert len(prices_of_id) == len({own["SkuPriceId"] for own in days})
    for own in days:
        assert Fraction(own["ListUnitPrice"]) * Fraction(own["PricingQuantity"]) == Fraction(own["ListCost"])
        assert own["ConsumedUnit"] == ("Seconds" if "GPUs" in own["SkuMeter"] else "Tokens")


def test_the_example_of_idle_gpus_on_the_page_comes_to_what_it_states() -> None:
    page = (ROOT / "docs" / "how-to" / "usage-and-bills.md").read_text()
    pattern = (
        r"(\d+) GPUs at (\d\.\d\d) an hour, proven to carry ([\d,]+) tokens a day, were asked for ([\d,]+)\. "
        r"(\d+) tenants may call the model, and `idle_share` is (0\.\d): each is billed ([\d,]+) seconds at "
        r"(\d+\.\d+) per million, which is (\d+\.\d\d)\."
    )
    example = re.search(pattern, page.replace("\n", " "))
    assert example, "no example"
    gpus, hour, carried, asked, tenants, share, seconds, price, cost = (
        Fraction(text.replace(",", "")) for text in example.groups()
    )
    assert seconds == DAY_S * (carried - asked) // (carried * tenants)
    pico = int(share * gpus * hour * 10**12 / 3600 + Fraction(1, 2))
    assert price == Fraction(pico, 10**6)
    assert rounded(int(seconds) * pico, "EUR") == f"{float(cost):.2f}"


def test_the_example_of_dedicated_gpus_on_the_page_comes_to_what_it_states() -> None:
    page = (ROOT / "docs" / "how-to" / "usage-and-bills.md").read_text()
    pattern = r"(\d+) GPUs at\s(\S+) for (\d+) days are ([\d,]+) seconds at (\S+) per million: ([\d,.]+\d)\."
    gpus, hour, days, seconds, price, cost = (text.replace(",", "") for text in re.findall(pattern, page)[0])
    plan = {"chat--for-a": DedicatedGpus(model="chat", gpus=Fraction(gpus), tenants=("a",))}
    spec = UsageSpec(
        database_secret="usage",
        prices=[{"since": "2026-12-01", "models": {}, "gpu_hour": float(hour)}],
    )
    pico = json.loads(price_book(spec, dedicated=plan))["versions"][0]["dedicated"]["chat--for-a"]["price"]
    assert (int(days) * DAY_S, f"{pico / 10**6:.6f}") == (int(seconds), price)
    assert rounded(pico * int(seconds), "EUR") == cost
