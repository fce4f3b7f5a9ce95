"""A PostgreSQL server, as a site's operator has one outside of the cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

NAME = "directory"
"""Of the database and of its role, which is no administrator."""


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """Its programs, its folder of data, and where it listens."""

    programs: Path
    data: Path
    host: str
    port: int

    def url(self, password: str) -> str:
        """As an operator writes it into a Secret."""
        return f"postgresql://{NAME}:{password}@{self.host}:{self.port}/{NAME}"

    def make(self, password: str) -> None:
        """Make the folder of data, with a database and a role that owns it, unless it is there. Raises LabError."""
        if (self.data / "pg_hba.conf").exists():
            return
        shutil.rmtree(self.data, ignore_errors=True)
        draft = self.data.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        self._run(
            "initdb", "--pgdata", str(draft), "--username=postgres", "--auth=reject", "--no-sync", "--encoding=UTF8"
        )
        role = f"CREATE ROLE {NAME} LOGIN PASSWORD '{password}'\nCREATE DATABASE {NAME} OWNER {NAME}\n"
        self._run("postgres", "--single", "-D", str(draft), "postgres", given=role)
        (draft / "pg_hba.conf").write_text(f"host {NAME} {NAME} all scram-sha-256\n")
        draft.rename(self.data)

    def _run(self, program: str, *words: str, given: str = "") -> None:
        command = [*as_a_user(), str(self.programs / program), *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode or "ERROR" in done.stderr:
            last = "".join(done.stderr.strip().splitlines()[-1:])
            fix = "see whether this machine permits user namespaces"
            raise LabError(f"PostgreSQL's {program} cannot make {self.data}: {last}", fix=fix)

    def command(self) -> list[str]:
        """What runs the server, behind `as_a_user`."""
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": "40",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self.data), *options]


def as_a_user() -> list[str]:
    """Starts a program that refuses to run as root: in a user namespace where root has another number."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
