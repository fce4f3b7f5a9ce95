"""A PostgreSQL server, as a site's operator has one outside of the cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """Its programs, its folder of data, and where it listens."""

    programs: Path
    data: Path
    host: str
    port: int

    def url(self, name: str, password: str) -> str:
        """Of a database, as an operator writes it into a Secret."""
        return f"postgresql://{name}:{password}@{self.host}:{self.port}/{name}"

    def make(self, names: Collection[str], password: str) -> None:
        """Make the folder of data, with databases of these names, each with a role of its name that owns it and is no
        administrator. Raises LabError."""
        shutil.rmtree(self.data, ignore_errors=True)
        draft = self.data.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        self._run(
            "initdb", "--pgdata", str(draft), "--username=postgres", "--auth=reject", "--no-sync", "--encoding=UTF8"
        )
        roles = [
            f"CREATE ROLE {name} LOGIN PASSWORD '{password}'\nCREATE DATABASE {name} OWNER {name}\n" for name in names
        ]
        self._run("postgres", "--single", "-D", str(draft), "postgres", given="".join(roles))
        (draft / "pg_hba.conf").write_text("".join(f"host {name} {name} all scram-sha-256\n" for name in names))
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
