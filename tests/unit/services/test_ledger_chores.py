"""What a ledger does by itself, beside a real PostgreSQL: where it cannot, that is counted, and rows are added."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import Ledger, line
from tests.unit.services.postgres_rig import Server, program

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35")]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger")) as running:
        yield running


@contextmanager
def reading(server: Server) -> Iterator[None]:
    """Somebody reads rows, as for a report, until the block ends."""
    psql = subprocess.Popen([program("psql"), "--quiet", server.url], stdin=subprocess.PIPE, text=True)
    assert psql.stdin is not None
    psql.stdin.write("BEGIN; SELECT FROM requests LIMIT 1;\n")
    psql.stdin.flush()
    try:
        eventually(lambda: server.rows("SELECT FROM pg_stat_activity WHERE state = 'idle in transaction'"))
        yield
    finally:
        psql.communicate("COMMIT;")


def failures(ledger: Ledger, chore: str) -> float:
    with ledger.client() as client:
        text = client.get("/metrics").text
    named = f'inference_usage_chore_failures_total{{chore="{chore}"}} '
    return sum(float(row.removeprefix(named)) for row in text.splitlines() if row.startswith(named))


def test_an_old_month_waits_for_who_reads_rows_and_no_writer_does(both: tuple[Server, Ledger]) -> None:
    """Nor does the first row of a month."""
    server, ledger = both
    old = "SELECT FROM pg_class WHERE relname = 'requests_2020_01'"
    server.sql("CREATE TABLE requests_2020_01 PARTITION OF requests FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')")
    ledger.end()
    with reading(server):
        ledger.start()
        ledger.wait_ready()
        longest = 0.0
        while failures(ledger, "partitions") < 2:
            began = time.monotonic()
            assert ledger.send(line(), line(started=f"{time.time():.6f}"))["added"] == 2
            longest = max(longest, time.monotonic() - began)
        assert longest < 3
        assert server.rows(old)
    eventually(lambda: not server.rows(old))
    assert "partitions failed: " in ledger.log.read_text()
