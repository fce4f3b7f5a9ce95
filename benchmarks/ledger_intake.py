"""What the ledger takes of a core for each row, and how many rows it commits per second."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click
import httpx

from benchmarks import processes, serving
from benchmarks.report import Cell, Result, Table
from lab.paths import Lab
from services.ledger import variables

HELP = "CPU time and rows per second of the ledger's intake beside a real PostgreSQL; needs no lab"
NEEDS_LAB = False
PARAMETERS = (
    click.Option(
        ["--ledger-rows"], type=int, default=40_000, show_default=True, help="ledger_intake: rows of each round"
    ),
)
_ROUNDS = 3
_SHAPES = ((1500, 1), (1500, 4), (500, 4), (100, 4))
"""Rows of a batch, and shippers at once."""
_DAY_S = 86_400
_ROOM = """
SELECT count(*), (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'requests'::regclass)
FROM requests;
"""
_PORT = 43_211


def run(lab: Lab, *, ledger_rows: int) -> Result:  # noqa: ARG001 - the form of every benchmark
    """Rows of forty tenants' keys and four models, over a day."""
    lines: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder)) as (ledger, database):
        _round(ledger, database.pid, 1000, 1, 4000)
        for batch, at_once in _SHAPES:
            rounds = [_round(ledger, database.pid, batch, at_once, ledger_rows) for _ in range(_ROUNDS)]
            names = list(rounds[0])
            lines.append(
                {"rows per batch": batch, "shippers at once": at_once}
                | {name: round(median(measured[name] for measured in rounds), 1) for name in names}
            )
        count, size = (int(figure) for figure in database.sql(_ROOM).split("|"))
    room: dict[str, Cell] = {"rows": count, "bytes per row": round(size / count)}
    return Result(
        benchmark="ledger_intake",
        question="How many rows does one ledger take, and what does a row cost of a core?",
        conditions={
            "rows": f"{ledger_rows:,} in each of {_ROUNDS} rounds, none known; medians",
            "database": "PostgreSQL of this machine without fsync, beside the ledger and the shippers",
            "cores_shared_by": f"ledger, PostgreSQL and shippers share {os.cpu_count()} cores",
        },
        tables=[Table(title="Intake", rows=lines), Table(title="On disk", rows=[room])],
        findings=[
            f"Batches of {line['rows per batch']} from {line['shippers at once']} at once: "
            f"{1e6 / float(line['ledger us of CPU per row'] or 1):,.0f} rows/s on one core of the ledger."
            for line in lines
        ]
        + [f"A row takes {room['bytes per row']} bytes of disk with its part of the index."],
    )


def _round(ledger: int, database: int, batch: int, at_once: int, rows: int) -> dict[str, float]:
    bodies = [_body(batch, rows) for _ in range(rows // batch)]
    before, began = (processes.family_cpu_s(ledger), processes.family_cpu_s(database)), time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        added = sum(pool.map(_send, bodies))
    wall_s = time.monotonic() - began
    assert added == len(bodies) * batch, "rows are missing"
    return {
        "rows/s": added / wall_s,
        "ledger us of CPU per row": 1e6 * (processes.family_cpu_s(ledger) - before[0]) / added,
        "PostgreSQL us of CPU per row": 1e6 * (processes.family_cpu_s(database) - before[1]) / added,
    }


def _send(body: bytes) -> int:
    url = f"http://127.0.0.1:{_PORT}{variables.ROWS_PATH}"
    answer = httpx.post(url, content=body, headers={variables.TOKEN_HEADER: serving.WRITER}, timeout=60)
    answer.raise_for_status()
    added: int = answer.json()["added"]
    return added


def _body(lines: int, rows: int) -> bytes:
    choose = random.Random(rows)  # noqa: S311 - a repeatable choice
    return b"\n".join(_line(choose) for _ in range(lines))


def _line(choose: random.Random) -> bytes:
    """As long as Envoy writes it."""
    model = f"model-{choose.randrange(4)}"
    fields = {
        "id": str(uuid.uuid4()),
        "started": f"{int(time.time()) - choose.randrange(_DAY_S)}.{choose.randrange(10**6):06d}",
        "client": f"tenant-{choose.randrange(8)}.key-{choose.randrange(5)}",
        "objective": f"interactive.{model}",
        "model": model,
        "path": "/v1/chat/completions",
        "status": 200,
        "stream_error": None,
        "details": "via_upstream",
        "flags": "-",
        "duration_ms": choose.randrange(60_000),
        "ttft_ms": choose.random() * 1000,
        "itl_ms": choose.random() * 50,
        "input_tokens": choose.randrange(8000),
        "cached_input_tokens": 0,
        "output_tokens": choose.randrange(1000),
        "reasoning_tokens": 0,
        "attempts": 1,
        "replica": "10.244.3.17:8000",
        "prompt_id": None,
        "trace_id": uuid.uuid4().hex,
    }
    return json.dumps(fields).encode()


@contextmanager
def _running(folder: Path) -> Iterator[tuple[int, serving.Database]]:
    """Process id of a ledger, and its database."""
    prices = {"input": 200_000, "cached_input": 50_000, "output": 800_000}
    models = {f"model-{number}": prices for number in range(4)}
    with (
        serving.database(folder, "ledger", port=_PORT + 1) as database,
        serving.ledger(folder, database, models, port=_PORT) as ledger,
    ):
        yield ledger, database
