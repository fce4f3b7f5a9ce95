"""The ledger beside a real PostgreSQL: what it measures of the running month, by tenant, model and tier."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.database import Database
from services.ledger.spending import MOST_PLACES, OTHERS, MonthWatch, shown
from services.ledger.tables import KEPT
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import DECEMBER, Ledger, line
from tests.unit.services.postgres_rig import Server

pytestmark = pytest.mark.row("000.35", "001.04")

DAY = 86_400
CHAT = ("search", "chat", "interactive", "EUR")
# 600 fresh tokens at 0.2, 400 cached at 0.05 and 100 of the answer at 0.8, each per million: in pico-units.
ROW = 600 * 200_000 + 400 * 50_000 + 100 * 800_000


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path) as running:
        yield running


@pytest.mark.processes
def test_the_month_is_measured_by_tenant_model_and_tier(both: tuple[Server, Ledger]) -> None:
    """Days before it are not in it; rows that come late are, of days that are over for long after some looks."""
    server, ledger = both
    november = DECEMBER - 30 * DAY
    now = DECEMBER - 10 * DAY

    async def look() -> None:
        database = Database(lambda: server.url, KEPT)
        watch = MonthWatch(database)
        assert await watch.look(now, "EUR") == {
            CHAT: (2200, 2 * ROW),
            ("own", "chat", "batch", "EUR"): (1100, ROW // 2),
        }
        ledger.send(line(started=f"{november + 9}.0"), line(started=f"{now - DAY}.5"))
        assert (await watch.look(now, "EUR"))[CHAT] == (3300, 3 * ROW)
        for _ in range(11):
            last = await watch.look(now, "EUR")
        assert last[CHAT] == (4400, 4 * ROW)
        # Of the next month nothing was used.
        assert await watch.look(DECEMBER, "EUR") == {}
        await database.close()

    ledger.send(
        line(started=f"{november - 1}.0"),
        line(started=f"{november}.0"),
        line(started=f"{now - 1}.0"),
        line(started=f"{now - 1}.1", client="own.a", objective="batch.chat"),
    )
    asyncio.run(look())


@pytest.mark.processes
def test_the_running_month_is_among_the_ledgers_metrics(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    (now,) = server.rows("SELECT extract(epoch FROM now())::bigint AS s")
    ledger.send(line(started=f"{now['s']}.0"))
    ledger.end()
    ledger.start()
    ledger.wait_ready()

    def has_cost() -> bool:
        with ledger.client() as client:
            return (
                'inference_usage_month_cost{currency="EUR",model="chat",tenant="search",tier="interactive"} 0.00022'
                in client.get("/metrics").text
            )

    eventually(has_cost)


def test_of_many_tenants_those_with_the_most_tokens_are_measured_and_the_rest_is_one() -> None:
    """So that a site's Prometheus has a bounded number of series, whose sum is all that was used."""
    used = {(f"t{number}", "chat", "none", "EUR"): (number, 10 * number) for number in range(MOST_PLACES + 50)}
    sums = shown([used])
    assert len(sums) == MOST_PLACES + 1
    assert sums[OTHERS, "chat", "none", "EUR"] == (sum(range(50)), 10 * sum(range(50)))
    assert sum(tokens for tokens, _ in sums.values()) == sum(range(MOST_PLACES + 50))
