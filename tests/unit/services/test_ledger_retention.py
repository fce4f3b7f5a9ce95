"""The ledger beside a real PostgreSQL: what it forgets by itself and by an order, and that no bill changes for it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from services.ledger.months import Month
from services.ledger.variables import ROWS_PATH
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import WRITER, Ledger, line, written
from tests.unit.services.postgres_rig import ROOT, Server, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35", "000.05")]

PERSON = "jane-doe"
DAY_S = 86_400


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger")) as running:
        yield running


def forget(ledger: Ledger, key: str) -> str:
    url = str(setting(ledger.folder, "--database-url-file"))
    command = [sys.executable, "-m", "services.ledger.forget", key, "--database-url-file", url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def bill(ledger: Ledger, tenant: str, month: Month) -> dict[str, Any]:
    with ledger.client() as client:
        answer: dict[str, Any] = client.get(f"/v1/bills/{tenant}/{month}").json()
    return answer


def without_keys(own: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own.items() if name != "lines"}


def test_a_person_is_in_no_table_once_their_key_is_forgotten(both: tuple[Server, Ledger]) -> None:
    """Of one tenant: another's key of this name stays, and one that begins with it. The bill comes to what it did."""
    server, ledger = both
    now, month = f"{time.time():.6f}", Month.of(time.time())
    of_person = [
        line(client=f"search.{PERSON}", started=now, **more)
        for more in ({}, {"objective": "batch.chat"}, {"revision": "chat--0a1b2c3d"}, {"status": 503})
    ]
    others = [line(client=client, started=now) for client in (f"sales.{PERSON}", f"search.{PERSON}-2", "search.john")]
    torn = written(line(client=f"search.{PERSON}"))[:200] + b"\n"
    with ledger.client(WRITER) as client:
        body = written(*of_person, *others, line(client=f"search.{PERSON}", started="1.5")) + torn
        assert client.post(ROWS_PATH, content=body).json() == {"added": 7, "known": 0, "unreadable": 2}
    for table, columns in (
        ("recent_requests", "(minute, tenant, key, refusal, requests) VALUES (now(), '{}', '{}', '', 1)"),
        ("recent_networks", "(tenant, key, network, seen) VALUES ('{}', '{}', 'abc', now())"),
        (
            "key_signals",
            "(tenant, key, signal, began, seen, figures) VALUES ('{}', '{}', 'burst', now(), now(), '{{}}')",
        ),
    ):
        server.sql(f"INSERT INTO {table} {columns.format('search', PERSON)}")
    before = bill(ledger, "search", month)
    assert forget(ledger, f"search.{PERSON}") == "4 rows had this key; its name is in no table any more\n"
    dump = server.dump()
    assert dump.count(PERSON) == dump.count(f"sales\t{PERSON}\t") + dump.count(f"search\t{PERSON}-2\t")
    assert dump.count("search.forgotten") == 2
    after = bill(ledger, "search", month)
    assert without_keys(after) == without_keys(before)
    assert forget(ledger, "search.john").startswith("1 rows")
    sums = server.rows(
        "SELECT tier, requests, failed FROM usage_by_hour WHERE tenant = 'search' AND key = 'forgotten' ORDER BY 1"
    )
    assert [tuple(row.values()) for row in sums] == [("batch", 1, 0), ("interactive", 4, 1)]
    assert server.rows("SELECT key FROM revisions_by_hour") == [{"key": "forgotten"}]
    assert without_keys(bill(ledger, "search", month)) == without_keys(before)
    assert forget(ledger, f"search.{PERSON}").startswith("0 rows")


def test_traces_and_old_keys_are_kept_for_their_time(both: tuple[Server, Ledger]) -> None:
    """Of rows that were written before and of those that come late; a bill of old sums is what it was."""
    server, ledger = both
    # In no id that is made of random digits.
    ids = {"prompt_id": "p-1", "trace_id": "trace-1"}
    now = time.time()
    for days, name in ((1, "kept"), (40, "old")):
        ledger.send(line(client=f"traced.{name}", started=f"{now - days * DAY_S:.6f}", **ids))
    traces = "SELECT key, prompt_id, trace_id FROM requests WHERE tenant = 'traced' ORDER BY key"
    expected = [{"key": "kept", **ids}, {"key": "old", "prompt_id": "", "trace_id": ""}]
    assert server.rows(traces) == expected
    with ledger.client(WRITER) as client:
        late = written(line(client="traced.kept", started="1.5", **ids))
        assert client.post(ROWS_PATH, content=late).json()["unreadable"] == 1
    server.sql("UPDATE unreadable_lines SET came = now() - interval '40 days'")
    server.sql("UPDATE requests SET prompt_id = 'p-1', trace_id = 'trace-1' WHERE tenant = 'traced'")
    # Nothing has been done yet, as when an earlier program ran until now.
    server.sql("UPDATE kept_until SET until = NULL")
    month = Month.of(now) + -20
    old = f"timestamptz '{month.start}' + interval '30 hours'"
    for key in ("one", "two"):
        server.sql(
            f"INSERT INTO usage_by_hour SELECT {old}, 'traced', '{key}', model, tier, price_version, requests, failed, "  # noqa: S608
            "input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, cost_pico FROM usage_by_hour "
            "WHERE tenant = 'traced' AND key = 'kept'"
        )
    before = bill(ledger, "traced", month)
    assert {own["key"] for own in before["lines"]} == {"one", "two"}
    ledger.end()
    ledger.start()
    ledger.wait_ready()
    eventually(lambda: server.rows(traces) == expected)
    eventually(lambda: {own["key"] for own in bill(ledger, "traced", month)["lines"]} == {""})
    assert without_keys(bill(ledger, "traced", month)) == without_keys(before)
    kept = server.rows("SELECT DISTINCT key FROM usage_by_hour WHERE tenant = 'traced' ORDER BY 1")
    assert [row["key"] for row in kept] == ["", "kept", "old"]
    eventually(lambda: not server.rows("SELECT FROM unreadable_lines WHERE line LIKE '%trace-1%' OR line LIKE '%p-1%'"))
    assert server.rows("SELECT FROM unreadable_lines WHERE line LIKE '%traced.kept%'")
