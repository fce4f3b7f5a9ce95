"""The ledger beside a real PostgreSQL: what it measures of the last full hour, and by how much engines may differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.database import Database
from services.ledger.hours import CLOSED_AFTER_S, EDGE_S, HOUR_S, Hour, HourWatch, bound_of, last_full
from services.ledger.tables import KEPT
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import DECEMBER, Ledger, line
from tests.unit.services.postgres_rig import Server

pytestmark = pytest.mark.row("000.35")

CANARY = "chat--0a1b2c3d"
HOUR = DECEMBER - 20 * 86_400
NOW = HOUR + HOUR_S + CLOSED_AFTER_S


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path) as running:
        yield running


def looked(server: Server, *moments: float) -> list[Hour]:
    async def look() -> list[Hour]:
        database = Database(lambda: server.url, KEPT)
        watch = HourWatch(database)
        hours = [await watch.look(moment) for moment in moments]
        await database.close()
        return hours

    return asyncio.run(look())


@pytest.mark.processes
def test_the_last_full_hour_is_measured_from_the_database_with_its_bound(both: tuple[Server, Ledger]) -> None:
    """By revision, and whatever process took the rows; what comes late is in it.

    Rows that ran at an edge of the hour, in it or not, and those whose clients left are by how much engines may differ.
    """
    server, ledger = both
    middle = HOUR + HOUR_S // 2
    ledger.send(
        line(started=f"{middle}.0"),
        line(started=f"{middle}.1", revision=CANARY, output_tokens=7),
        # It begins before the hour, and its engine makes most of it within.
        line(started=f"{HOUR - 200}.0", duration_ms=250_000, input_tokens=50, output_tokens=40),
        line(started=f"{HOUR - 3 * EDGE_S}.0", input_tokens=10_000),
        line(started=f"{HOUR + HOUR_S - 1}.0", input_tokens=500, output_tokens=300),
        # A stream of which the client read a part, and an answer of which it got nothing.
        line(started=f"{middle}.2", flags="DC", input_tokens=60, output_tokens=5),
        line(started=f"{middle}.3", flags="DC", input_tokens=0, output_tokens=0, itl_ms=None, duration_ms=725),
    )
    hour, same = looked(server, NOW, NOW + 600)
    assert same is hour
    assert (hour.start, hour.requests) == (HOUR, 5)
    stable, canary = ("chat", "chat"), ("chat", CANARY)
    assert hour.tokens == {
        (*stable, "input"): 1560,
        (*stable, "output"): 405,
        (*canary, "input"): 1000,
        (*canary, "output"): 7,
    }
    # 7.25 ms between tokens: two aborts of two seconds, and 100 tokens of the answer that was never read.
    prompt = (1000 + 50 + 10_000 + 500 + 60) // 5
    assert hour.bound == {(*stable, "input"): 50 + 500 + 60 + prompt, (*stable, "output"): 40 + 300 + 652}
    ledger.send(line(started=f"{middle}.9"))
    assert looked(server, NOW)[0].tokens[*stable, "input"] == 2560


@pytest.mark.processes
def test_the_measured_hour_is_among_the_ledgers_metrics(both: tuple[Server, Ledger]) -> None:
    _, ledger = both

    def start() -> float:
        with ledger.client() as client:
            rows = client.get("/metrics").text.splitlines()
        (row,) = [row for row in rows if row.startswith("inference_usage_hour_start_timestamp_seconds ")]
        return float(row.split()[-1])

    eventually(lambda: start() in (last_full(time.time()), last_full(time.time() - 60)))


def test_an_hour_is_shown_once_its_rows_have_had_time_to_come() -> None:
    assert [last_full(NOW + more) for more in (-1, 0, HOUR_S - 1, HOUR_S)] == [HOUR - HOUR_S, HOUR, HOUR, HOUR + HOUR_S]


def test_without_an_answer_a_token_takes_no_time_and_a_prompt_has_none() -> None:
    """Of a revision all of whose requests were abandoned, an engine is taken to be fast."""
    names = ("across_input", "across_output", "left_input", "prompts", "prompt_tokens", "gaps", "gaps_ms")
    assert bound_of({**dict.fromkeys(names, 0), "left_early": 1, "unread": 1, "unread_ms": 1000}) == {
        "input": 0,
        "output": 600,
    }
