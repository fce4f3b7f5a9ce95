"""Lines that are no row: the ledger keeps them, and adds those that are one later."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.ledger.months import Month
from services.ledger.variables import ROWS_PATH
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import WRITER, line, written
from tests.unit.services.postgres_rig import ROOT, Server, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35")]

NETWORK = "0123456789abcdef"
AGAIN = ("-m", "services.ledger.again", "--keep-months", "13")


def lines_of(server: Server) -> list[tuple[str, str]]:
    return [(row["reason"], row["line"]) for row in server.rows("SELECT * FROM unreadable_lines ORDER BY reason, line")]


def test_lines_that_are_no_row_are_kept_and_added_once_they_are(tmp_path: Path) -> None:
    """Whole, and without the network of their key; a line that is sent twice is kept once."""
    with ledger_rig.running(tmp_path, "--keep-months", "1") as (server, ledger):
        old = line(started=f"{(Month.of(time.time()) + -4).start.timestamp():.6f}", network=NETWORK)
        wrong = line(input_tokens=-1)
        torn = json.dumps(line(network=NETWORK)).encode()[:-40]
        body = torn + written(line(), old, wrong, old) + b"\xff\0\n"
        for added, known in ((1, 0), (0, 1)):
            with ledger.client(WRITER) as client:
                counts = client.post(ROWS_PATH, content=body).json()
            assert counts == {"added": added, "known": known, "unreadable": 5}
        kept = lines_of(server)
        assert [reason for reason, _ in kept] == ["no object", "no object", "time", "tokens"]
        assert json.loads(kept[2][1]) == old | {"network": ""}
        assert json.loads(kept[3][1]) == wrong
        assert NETWORK not in str(kept)
        assert {"\\xff\\0", torn.decode().replace(NETWORK, "")} == {text for _, text in kept[:2]}

        files = [
            word for name in ("--database-url-file", "--prices-file") for word in (name, str(setting(tmp_path, name)))
        ]

        def again() -> str:
            done = subprocess.run(
                [sys.executable, *AGAIN, *files], cwd=ROOT, capture_output=True, text=True, check=True
            )
            return done.stdout.strip()

        # By a ledger that keeps rows for longer.
        assert again() == "1 rows added, 0 known before; 3 lines are no row"
        server.sql("UPDATE unreadable_lines SET line = replace(line, '-1', '1000') WHERE reason = 'tokens'")
        assert again() == "1 rows added, 0 known before; 2 lines are no row"
        assert again() == "0 rows added, 0 known before; 2 lines are no row"
        sums = "SELECT sum(requests) AS requests, sum(input_tokens) AS tokens FROM usage_by_hour"
        assert server.rows(sums) == [{"requests": 3, "tokens": 3000}]
        server.sql("UPDATE unreadable_lines SET came = '2020-01-01'")
        ledger.end()
        ledger.start()
        ledger.wait_ready()
        eventually(lambda: not lines_of(server))
