"""The ledger beside a real PostgreSQL with many sums: what adds them up takes its time, and holds no writer up."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from services.database import _ANSWER_S, Database
from services.ledger.bills import UsedInDay
from services.ledger.months import Month
from services.ledger.reader import UsageReader
from services.ledger.tables import KEPT
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import BOOK, Ledger, line
from tests.unit.services.postgres_rig import Server, program, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35")]

DAYS = 28


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger")) as running:
        yield running


def test_rows_are_added_while_the_sums_of_the_month_are_counted_again(both: tuple[Server, Ledger]) -> None:
    """Once, after a migration, and for longer than an answer may take: here it waits for a row of the table."""
    server, ledger = both
    now = f"{time.time():.6f}"
    ledger.send(line(client="behind.a", started=now), line(client="other.a", started=now))
    server.sql("UPDATE usage_by_hour SET input_tokens = input_tokens + 5 WHERE tenant = 'behind'")
    held = "BEGIN; SELECT FROM spent_by_month WHERE tenant = 'behind' FOR UPDATE;"
    psql = subprocess.Popen([program("psql"), "--quiet", server.url], stdin=subprocess.PIPE, text=True)
    assert psql.stdin is not None
    try:
        psql.stdin.write(f"{held}\n")
        psql.stdin.flush()
        eventually(lambda: server.rows("SELECT FROM pg_stat_activity WHERE state = 'idle in transaction'"))
        server.sql("UPDATE recounts SET due = now()")
        ledger.end()
        ledger.start()
        ledger.wait_ready()
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%missing GROUP BY%'"
        eventually(lambda: server.rows(waits))
        began = time.monotonic()
        while time.monotonic() < began + _ANSWER_S + 2:
            assert ledger.send(line(client="other.a", started=now))["added"] == 1
        assert server.rows(waits)
    finally:
        psql.communicate("COMMIT;")
    eventually(lambda: server.rows("SELECT FROM spent_by_month WHERE tenant = 'behind' AND tokens = 1105"))
    eventually(lambda: not server.rows("SELECT FROM recounts"))
    sums = "SELECT tenant, sum(input_tokens + output_tokens), sum(cost_pico) FROM usage_by_hour GROUP BY 1 ORDER BY 1"
    spent = "SELECT tenant, tokens, cost_pico FROM spent_by_month ORDER BY 1"
    assert server.sql(spent).stdout == server.sql(sums).stdout


def test_models_that_clients_make_up_are_one_sum_and_no_line_of_a_bill(both: tuple[Server, Ledger]) -> None:
    """Rows have what was asked for. A model that is served, or had tokens, keeps its name; also one of many before."""
    server, ledger = both
    month = Month.of(time.time())
    now = f"{time.time():.6f}"
    setting(ledger.folder, "--prices-file").write_text(json.dumps(BOOK | {"served": ["chat", "an-alias"]}))
    none: dict[str, Any] = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "status": 404}
    asked = [line(client="names.a", started=now, model=f"no-such-{number}", **none) for number in range(500)]
    served = [line(client="names.a", started=now, model=name, **none) for name in ("chat", "an-alias")]
    ledger.send(*asked, *served, line(client="names.a", started=now, model="gone", status=200))
    sums = "SELECT model, requests FROM {} WHERE tenant = 'names' ORDER BY 1"
    assert [tuple(row.values()) for row in server.rows(sums.format("usage_by_hour"))] == [
        ("", 500),
        ("an-alias", 1),
        ("chat", 1),
        ("gone", 1),
    ]
    assert not server.rows(sums.format("revisions_by_hour"))
    assert len(server.rows("SELECT DISTINCT model FROM requests WHERE tenant = 'names'")) == 503
    server.sql(
        "INSERT INTO usage_by_hour SELECT date_trunc('hour', now(), 'UTC'), 'names', 'k', 'earlier-' || i, '', 'none', "
        "1, 1, 0, 0, 0, 0, 0 FROM generate_series(1, 20000) AS i"
    )

    async def days() -> list[UsedInDay]:
        database = Database(lambda: server.url, KEPT)
        try:
            return (await UsageReader(database).month("names", month))[0]
        finally:
            await database.close()

    assert len(asyncio.run(days())) == 2
    with ledger.client() as client:
        bill = client.get(f"/v1/bills/names/{month}").json()
    assert (bill["requests"], bill["failed_requests"]) == (20_503, 20_502)
    assert {line["model"] for line in bill["lines"]} == {"gone"}


def test_usage_of_all_tenants_is_added_up_day_by_day(both: tuple[Server, Ledger]) -> None:
    """A database that takes longer for a month than it may, and not for a day, answers."""
    server, ledger = both
    month = (Month.of(time.time()) + -1).start
    server.sql(
        f"INSERT INTO usage_by_hour SELECT timestamptz '{month}' + (i % {24 * DAYS}) * interval '1 hour', "  # noqa: S608
        "'tenant-' || i % 1000, 'key-' || i / 1000, 'chat', '', 'none', 1, 0, 10, 0, 1, 0, 0 "
        "FROM generate_series(1, 600000) AS i"
    )
    server.sql("ANALYZE")
    began = time.monotonic()
    server.sql("SELECT tenant, hour, model, sum(requests) FROM usage_by_hour GROUP BY 1, 2, 3")
    whole_ms = 1000 * (time.monotonic() - began)
    server.sql(f"ALTER ROLE CURRENT_USER SET statement_timeout = '{whole_ms / 2:.0f}ms'")
    ledger.end()
    ledger.start()
    ledger.wait_ready()
    start = int(month.timestamp())
    asked: dict[str, Any] = {
        "start_time": start,
        "end_time": start + DAYS * 86_400,
        "limit": 31,
        "group_by": ["project_id", "model"],
    }
    with ledger.client() as client:
        for page in ("usage/completions", "costs"):
            answer = client.get(f"/v1/organization/{page}", params=asked)
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["data"]) == DAYS
            assert all(len(bucket["results"]) == 1000 for bucket in answer.json()["data"])
