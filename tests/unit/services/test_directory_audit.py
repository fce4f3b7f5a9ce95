"""The chain of the audit in a real PostgreSQL: what its owner changes with the trigger off is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.directory.audit import Head, chained
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import Directory, chain, created
from tests.unit.services.postgres_rig import ROOT, Server, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.05")]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path) as running:
        yield running


def by_its_owner(server: Server, change: str) -> None:
    """As someone does it who has the database's password."""
    server.sql(f"ALTER TABLE audit DISABLE TRIGGER append_only; {change}; ALTER TABLE audit ENABLE TRIGGER append_only")


def test_what_the_databases_owner_changes_is_found(both: tuple[Server, Directory]) -> None:
    server, directory = both
    with directory.client() as client:
        for name in ("a", "b", "c", "d"):
            created(client, name=name)
        rows = chain(client, limit=3)
        kept = Head(4, rows[-1]["hash"])
        assert client.get("/v1/audit").json()["head"] == {"count": 4, "hash": kept.hash}
        assert chained(rows, kept) == (kept, "")
        assert chained(rows, Head(3, rows[2]["hash"])) == (kept, "")
        by_its_owner(server, "UPDATE audit SET actor = 'another' WHERE number = 2")
        assert "row 2 does not fit" in chained(chain(client), kept)[1]
        by_its_owner(server, "UPDATE audit SET actor = 'a-test' WHERE number = 2")
        assert chained(chain(client), kept) == (kept, "")
        by_its_owner(server, "UPDATE audit SET after = jsonb_set(after, '{name}', '\"z\"') WHERE number = 3")
        assert "row 3 does not fit" in chained(chain(client), kept)[1]
        by_its_owner(server, "DELETE FROM audit WHERE number = 3")
        assert "row 4 does not fit" in chained(chain(client), kept)[1]
        by_its_owner(server, "DELETE FROM audit WHERE number = 4")
        # What is left is a chain, which only a head from before knows to be shorter.
        assert chained(chain(client))[1] == ""
        assert "row 3 is missing: there were 4 rows, and 2 are left" in chained(chain(client), kept)[1]
        for name in ("e", "f"):
            created(client, name=name)
        assert chained(chain(client))[1] == ""
        assert "row 4 is not the one of the head that was kept" in chained(chain(client), kept)[1]


@pytest.mark.exhaustive
def test_an_audit_of_before_becomes_a_chain_and_goes_back(both: tuple[Server, Directory]) -> None:
    """A directory that has gone back writes on where it was, as the version before did."""
    server, directory = both
    with directory.client() as client:
        created(client, name="a")
        created(client, name="b")
        directory.end()
        url = setting(directory.folder, "--database-url-file")
        back = [sys.executable, "-m", "services.directory.back", "0001", "--database-url-file", str(url)]
        subprocess.run(back, cwd=ROOT, check=True)
        columns = "number, at, actor, action, key_id, tenant"
        before = server.rows(f"SELECT {columns} FROM audit ORDER BY number")  # noqa: S608 - a constant
        # As that version writes it.
        server.sql(
            "INSERT INTO audit (at, actor, action, key_id, tenant) VALUES (1, 'old', 'revoke', 'aaaaaaaaaa', 'search')"
        )
        assert [row["number"] for row in before] == [1, 2]
        directory.start()
        directory.wait_ready()
        created(client, name="c")
        rows = chain(client)
    assert [(row["number"], row["actor"], row["source"], row["after"] is None) for row in rows] == [
        (1, "a-test", "", True),
        (2, "a-test", "", True),
        (3, "old", "", True),
        (4, "a-test", "", False),
    ]
    assert chained(rows) == (Head(4, rows[-1]["hash"]), "")
    assert "only added" in server.sql("DELETE FROM audit", check=False).stderr
