"""The ledger beside a real PostgreSQL: which revision of its model answered a request, also across its migrations."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from services.database import _LOCK, Database
from services.ledger.tables import KEPT, METADATA
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import DECEMBER, Ledger, line
from tests.unit.services.postgres_rig import ROOT, Server, differences, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35", "003.20")]

CANARY, OWN = "chat--0a1b2c3d", "chat--for-own"
# A row of 1,000 tokens and another of 100, far enough back that a ledger takes it.
DAY = DECEMBER - 20 * 86_400


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger")) as running:
        yield running


def sums(ledger: Ledger, kind: str, *groups: str) -> dict[tuple[Any, ...], Any]:
    """Of the day, by groups: answered and failed requests and tokens, or what they cost."""
    asked: dict[str, Any] = {"start_time": DAY, "end_time": DAY + 86_400, "group_by": list(groups)}
    with ledger.client() as client:
        answer = client.get(f"/v1/organization/{kind}", params=asked)
    assert answer.status_code == 200, answer.text
    (bucket,) = answer.json()["data"]
    figures = ("num_model_requests", "num_failed_requests", "input_tokens", "input_cached_tokens", "output_tokens")
    return {
        tuple(result[group] for group in groups): result["amount"]["exact"]
        if "amount" in result
        else tuple(result[figure] for figure in figures)
        for result in bucket["results"]
    }


def test_usage_is_added_up_by_the_revision_that_answered(both: tuple[Server, Ledger]) -> None:
    """Over two tenants, of which one is answered by its own replicas alone. A line without a revision is the model's.

    Sums without it are what they were, and those by it come to them.
    """
    server, ledger = both
    earlier = line(started=f"{DAY + 60}.0")
    del earlier["revision"]
    ledger.send(
        earlier,
        line(started=f"{DAY + 61}.0"),
        line(started=f"{DAY + 62}.0", revision=CANARY, output_tokens=7),
        line(started=f"{DAY + 7200}.0", revision=CANARY, status=503),
        line(started=f"{DAY + 63}.0", client="own.a", revision=OWN),
    )
    by_revision = sums(ledger, "usage/completions", "project_id", "model", "revision")
    assert by_revision == {
        ("search", "chat", "chat"): (2, 0, 2000, 800, 200),
        ("search", "chat", CANARY): (1, 1, 2000, 800, 107),
        ("own", "chat", OWN): (1, 0, 1000, 400, 100),
    }
    whole = sums(ledger, "usage/completions", "project_id")
    assert whole["search",] == (3, 1, 4000, 1600, 307)
    costs = sums(ledger, "costs", "revision")
    assert costs == {("chat",): "0.00044", (CANARY,): "0.0003656", (OWN,): "0.00022"}
    kept = server.rows("SELECT revision, count(*) FROM requests GROUP BY 1 ORDER BY 1")
    assert [tuple(row.values()) for row in kept] == [("chat", 2), (CANARY, 2), (OWN, 1)]
    assert server.rows("SELECT DISTINCT revision FROM revisions_by_hour ORDER BY 1") == [
        {"revision": CANARY},
        {"revision": OWN},
    ]
    with ledger.client() as client:
        metrics = client.get("/metrics").text
    tokens = f'inference_usage_tokens_total{{kind="output",model="chat",revision="{CANARY}"}} 107.0'
    assert tokens in metrics


def test_a_migration_may_take_longer_than_an_answer(both: tuple[Server, Ledger]) -> None:
    """Here it waits for another that is not done."""
    server, ledger = both
    ledger.end()
    before = ledger.log.read_text()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.sql, f"BEGIN; SELECT pg_advisory_xact_lock({_LOCK}), pg_sleep(7); COMMIT")
        held = f"SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = {_LOCK}"
        eventually(lambda: server.rows(held))
        ledger.start()
        ledger.wait_ready()
        assert not server.rows(held)
    assert "no connection" not in ledger.log.read_text().removeprefix(before)


def test_tables_go_back_each_step_and_forward_again(both: tuple[Server, Ledger]) -> None:
    """One by one, and from the newest to each: sums, days that are closed and lines that are no row stay."""
    server, ledger = both
    ledger.send(
        line(started=f"{time.time():.6f}", asked_model="other", revision=CANARY, prompt_id="p-1"),
        line(started=f"{time.time():.6f}", client="other.ci", input_tokens=-1),
    )
    ledger.end()
    server.sql(
        "INSERT INTO idle_by_day VALUES (date_trunc('month', now(), 'UTC'), 'chat', 100, 5, 'EUR', '{search}', 60)"
    )
    numbers = sorted(file.name[:4] for file in KEPT.migrations.glob("[0-9]*.py"))
    whole = kept(server)

    async def go(*backs: str) -> None:
        database = Database(lambda: server.url, KEPT)
        try:
            for back in backs:
                await database.migrate(back_to=back)
                assert server.rows("SELECT version_num FROM ledger_alembic_version") == [{"version_num": back}]
            await database.migrate()
        finally:
            await database.close()

    for backs in (*([number] for number in numbers[-2::-1]), numbers[-2::-1]):
        asyncio.run(go(*backs))
        assert kept(server) == whole, backs
        different = asyncio.run(differences(server.url, KEPT, METADATA))
        assert [own for own in different if "requests_2" not in str(own)] == [], backs
    ledger.start()
    ledger.wait_ready()
    assert ledger.send(line(started=f"{time.time():.6f}"))["added"] == 1


def kept(server: Server) -> list[Any]:
    """What no way back takes."""
    return [
        server.rows(f"SELECT * FROM {table} ORDER BY 1")  # noqa: S608 - names of tables
        for table in ("usage_by_hour", "spent_by_month", "price_versions", "idle_by_day", "unreadable_lines")
    ] + server.rows("SELECT id, tenant, key, model, input_tokens, cost_pico, prompt_id FROM requests ORDER BY id")


def test_tables_go_back_to_those_without_revisions_and_forward_again(both: tuple[Server, Ledger]) -> None:
    """What was used stays, with all of it the model's; rows that come then have their revision."""
    server, ledger = both
    ledger.send(line(started=f"{DAY + 60}.0", revision=CANARY))
    ledger.end()
    url = setting(ledger.folder, "--database-url-file")
    back = [sys.executable, "-m", "services.ledger.back", "0004", "--database-url-file", str(url)]
    subprocess.run(back, cwd=ROOT, check=True)
    assert not server.rows("SELECT FROM pg_class WHERE relname = 'revisions_by_hour'")
    assert "revision" not in server.rows("SELECT * FROM requests")[0]
    ledger.start()
    ledger.wait_ready()
    assert sums(ledger, "usage/completions", "revision") == {("chat",): (1, 0, 1000, 400, 100)}
    # As an earlier program adds, which still runs beside the first later one.
    server.sql(
        "INSERT INTO usage_by_hour SELECT hour, 'earlier', key, model, tier, price_version, requests, failed, "
        "input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, cost_pico FROM usage_by_hour"
    )
    ledger.send(line(started=f"{DAY + 61}.0", revision=CANARY))
    assert sums(ledger, "usage/completions", "revision") == {
        ("chat",): (2, 0, 2000, 800, 200),
        (CANARY,): (1, 0, 1000, 400, 100),
    }
