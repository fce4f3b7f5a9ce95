"""The platform's services as processes of this machine, beside a real PostgreSQL; they end with their block."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lab.cluster.postgres import Postgres, as_a_user
from lab.errors import LabError
from lab.install import parts, system
from lab.paths import CHECKOUT
from services.directory import variables as directory_names
from services.ledger import variables as ledger_names

WRITER, OPERATOR, READER = "writer", "operator", "reader"
_PASSWORD = "benchmark"  # noqa: S105 - of a database that lives as long as a benchmark
_READY_S = 60.0
_PROGRAMS = system.wheel_programs(next(wheel for wheel in parts.WHEELS if wheel.name == "postgres"))


@dataclass(frozen=True, kw_only=True)
class Database:
    """A running PostgreSQL with one database."""

    url: str
    pid: int
    data: Path

    def sql(self, text: str) -> str:
        """What statements print. Raises LabError where one fails."""
        words = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", self.url]
        done = subprocess.run([str(_PROGRAMS["psql"]), *words], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"PostgreSQL refused a statement: {done.stderr.strip()}", fix="correct the benchmark")
        return done.stdout.strip()


@contextmanager
def database(folder: Path, name: str, *, port: int) -> Iterator[Database]:
    """One without fsync, in a folder of this name. Raises LabError when it cannot be made."""
    data = folder / name
    postgres = Postgres(programs=_PROGRAMS["postgres"].parent, data=data, host="127.0.0.1", port=port)
    postgres.make([name], _PASSWORD)
    with _process([*as_a_user(), *postgres.command()]) as pid:
        yield Database(url=postgres.url(name, _PASSWORD), pid=pid, data=data)


@contextmanager
def ledger(folder: Path, kept: Database, models: Mapping[str, Mapping[str, int]], *, port: int) -> Iterator[int]:
    """Process id of a ledger. models: with their prices, as the price book has them."""
    book = {"currency": "EUR", "versions": [{"from": 0, "models": models, "tiers": {}}]}
    files = dict(zip(ledger_names.FILES, (kept.url, json.dumps(book), WRITER, OPERATOR), strict=True))
    with service(folder, "ledger", ["serve"], files, port=port) as pid:
        yield pid


@contextmanager
def directory(folder: Path, kept: Database, tenants: Mapping[str, Any], *, port: int) -> Iterator[int]:
    """Process id of a directory of keys."""
    contents = (kept.url, json.dumps({"tenants": tenants}), "pepper", OPERATOR, READER)
    files = dict(zip(directory_names.FILES, contents, strict=True))
    with service(folder, "directory", [], files, port=port) as pid:
        yield pid


@contextmanager
def service(folder: Path, name: str, arguments: Sequence[str], files: Mapping[str, str], *, port: int) -> Iterator[int]:
    """Process id of one that is ready. files: options that name a file, and its content. Raises LabError."""
    words = list(arguments)
    for option, text in files.items():
        file = folder / f"{name}{option}"
        file.write_text(text)
        words += [option, str(file)]
    with _process([sys.executable, "-m", f"services.{name}", *words, "--port", str(port)]) as pid:
        deadline = time.monotonic() + _READY_S
        while not _is_ready(port):
            if time.monotonic() > deadline:
                raise LabError(f"{name} is not ready after {_READY_S:.0f} s", fix="run it by hand")
            # It has to start on the same cores.
            time.sleep(0.1)
        yield pid


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def _process(command: Sequence[str]) -> Iterator[int]:
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
