"""A real PostgreSQL, and a service as a process beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import AsyncConnection

from lab.cluster.postgres import Postgres, as_a_user
from lab.free_ports import free_port
from lab.install import parts, system
from services.database import Database, Kept

ROOT = Path(__file__).parents[3]
PASSWORD = "password-of-the-database"
_WHEEL = next(wheel for wheel in parts.WHEELS if wheel.name == "postgres")


def program(name: str) -> Path:
    return system.wheel_programs(_WHEEL)[name]


@dataclass
class Server:
    """PostgreSQL; its data outlives it."""

    postgres: Postgres
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def made(cls, folder: Path) -> Server:
        server = cls(Postgres(programs=program("postgres").parent, data=folder, host="127.0.0.1", port=free_port()))
        server.postgres.make(["directory"], PASSWORD)
        return server

    @property
    def url(self) -> str:
        return self.postgres.url("directory", PASSWORD)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*as_a_user(), *self.postgres.command()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while self.sql("SELECT 1", check=False).returncode:
            assert self.process.poll() is None, "PostgreSQL ended"

    def kill(self) -> None:
        """As a power cut: nothing is written on the way out."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            (self.postgres.data / "postmaster.pid").unlink(missing_ok=True)
            self.process = None

    def sql(self, statement: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(program("psql")), "--no-psqlrc", "--tuples-only", "--no-align", "--command", statement, self.url]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """What a query gives, as JSON has it."""
        answer = self.sql(f"SELECT coalesce(json_agg(row_to_json(q)), '[]') FROM ({query}) AS q").stdout  # noqa: S608
        rows: list[dict[str, Any]] = json.loads(answer)
        return rows

    def run_file(self, file: Path) -> None:
        command = [str(program("psql")), "--no-psqlrc", "--quiet", "--file", str(file), self.url]
        subprocess.run(command, capture_output=True, check=True)

    def dump(self) -> str:
        done = subprocess.run([str(program("pg_dump")), self.url], capture_output=True, text=True, check=True)
        return done.stdout


@dataclass
class Service:
    """A service as a process. `log` is what it wrote."""

    folder: Path
    name: str
    arguments: Sequence[str]
    """Behind `python -m services.NAME`."""
    port: int = field(default_factory=free_port)
    port_option: str = "--port"
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}-{self.port}.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", f"services.{self.name}", *self.arguments, self.port_option, str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        status, self.process = self.process.wait(20), None
        return status

    def wait_ready(self, status: int = 200, timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        with httpx.Client(base_url=self.url, timeout=40) as client:
            while True:
                with suppress(httpx.TransportError):
                    if client.get("/readyz").status_code == status:
                        return
                assert time.monotonic() < deadline, self.log.read_text()[-2000:]
                # The process that is asked has to start on the same cores.
                time.sleep(0.02)


ServiceKind = TypeVar("ServiceKind", bound=Service)


def setting(folder: Path, option: str) -> Path:
    """The file that a service's option names."""
    return folder / option.removeprefix("--")


def write_files(folder: Path, contents: Mapping[str, str]) -> None:
    """The files that a pod has mounted, by the options that name them."""
    for option, content in contents.items():
        setting(folder, option).write_text(f"{content}\n")


@contextmanager
def served(folder: Path, service: ServiceKind, write: Callable[[str], None]) -> Iterator[tuple[Server, ServiceKind]]:
    """A service beside its database, both of which end with the block. write: its files, for the database's URL."""
    server = Server.made(folder / "data")
    try:
        server.start()
        write(server.url)
        service.start()
        service.wait_ready()
        yield server, service
    finally:
        service.end(signal.SIGKILL)
        server.kill()


async def differences(url: str, kept: Kept, metadata: sa.MetaData) -> list[Any]:
    """Between the tables that the migrations make and those that a service describes."""
    database = Database(lambda: url, kept)
    try:
        await database.migrate()
        async with database.transaction() as connection:
            return await _compared(connection, kept, metadata)
    finally:
        await database.close()


async def _compared(connection: AsyncConnection, kept: Kept, metadata: sa.MetaData) -> list[Any]:
    def compare(own: sa.Connection) -> list[Any]:
        options = {"version_table": kept.version_table}
        return list(compare_metadata(MigrationContext.configure(own, opts=options), metadata))

    return await connection.run_sync(compare)
