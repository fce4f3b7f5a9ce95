"""The ledger when its database comes back as it was at a moment: a base backup, and the log that was archived since."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.postgres import as_a_user
from services.ledger.variables import ROWS_PATH
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import WRITER, Ledger, line, written
from tests.unit.services.postgres_rig import Server, program
from tests.unit.services.test_ledger_rows import rows_equal_their_sums

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35", "opening 17")]


class Archive:
    """Where the server puts its log, and a base backup."""

    def __init__(self, folder: Path) -> None:
        self.log, self.base = folder / "log", folder / "base"
        self.log.mkdir()

    def keep_of(self, server: Server) -> None:
        """From the server's next start on."""
        data = server.postgres.data
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all,replication postgres 127.0.0.1/32 trust\n")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"archive_mode = on\narchive_command = 'cp %p {self.log}/%f'\n")

    def back_up(self, server: Server) -> None:
        where = ["--host=127.0.0.1", f"--port={server.postgres.port}", "--username=postgres"]
        backup = str(program("postgres").parent / "pg_basebackup")
        subprocess.run([*as_a_user(), backup, *where, "--pgdata", str(self.base), "--checkpoint=fast"], check=True)

    def restored(self, server: Server, moment: str) -> Server:
        """The server that has been there until the moment, at the same address."""
        with (self.base / "postgresql.conf").open("a") as settings:
            settings.write(f"restore_command = 'cp {self.log}/%f %p'\nrecovery_target_time = '{moment}'\n")
            settings.write("recovery_target_action = 'promote'\n")
        (self.base / "recovery.signal").touch()
        shutil.rmtree(server.postgres.data)
        return Server(replace(server.postgres, data=self.base))


def switch_log(server: Server) -> str:
    """End the file of the log that is written to; its name."""
    url = f"postgresql://postgres@127.0.0.1:{server.postgres.port}/postgres"
    ended = "SELECT pg_walfile_name(pg_switch_wal())"
    command = [str(program("psql")), "--no-psqlrc", "--tuples-only", "--no-align", "--command", ended, url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_ledger_goes_on_from_the_moment_that_its_database_is_restored_to(tmp_path: Path) -> None:
    """What was billed before is there to the token, a mistake is gone, and what a shipper still has is added once."""
    backed_up, before, after = (line(input_tokens=tokens) for tokens in (1000, 2000, 4000))
    archive = Archive(tmp_path)
    with ledger_rig.running(tmp_path) as (server, ledger):
        server.kill()
        archive.keep_of(server)
        server.start()
        eventually(lambda: sent(ledger, backed_up))
        archive.back_up(server)
        ledger.send(before)
        moment = server.sql("SELECT clock_timestamp()").stdout.strip()
        server.sql("DELETE FROM requests")
        ledger.send(after)
        file = switch_log(server)
        # A file is there before it is whole.
        eventually(lambda: server.sql("SELECT last_archived_wal FROM pg_stat_archiver").stdout.strip() >= file)
        server.kill()
        restored = archive.restored(server, moment)
        try:
            restored.start()
            eventually(lambda: restored.sql("SELECT pg_is_in_recovery()").stdout.strip() == "f")
            assert tokens_of(restored) == {"1000", "2000"}
            # By a shipper whose checkpoint is behind both.
            eventually(lambda: sent(ledger, before, after))
            assert tokens_of(restored) == {"1000", "2000", "4000"}
            rows_equal_their_sums(restored)
        finally:
            restored.kill()


def tokens_of(server: Server) -> set[str]:
    return set(server.sql("SELECT input_tokens FROM requests").stdout.split())


def sent(ledger: Ledger, *lines: dict[str, Any]) -> bool:
    """False while the ledger has no connection to its database."""
    with ledger.client(WRITER) as client:
        return client.post(ROWS_PATH, content=written(*lines)).is_success
