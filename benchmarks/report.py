"""What a benchmark gives back, as a table for people and as JSON for the record."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
Cell = str | int | float | None
Row = Mapping[str, Cell]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows with the same keys; the keys are the columns and carry the units."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run of one benchmark."""

    benchmark: str
    question: str
    conditions: Mapping[str, Cell]
    tables: Sequence[Table]
    findings: Sequence[str]
    """Sentences made of the figures of this run."""
    machine: Mapping[str, Cell] = field(default_factory=dict)


def machine(sample_s: float = 3.0) -> dict[str, Cell]:
    """The machine, and how busy its cores were with other things right before the run."""
    before = _busy_and_total()
    time.sleep(sample_s)
    after = _busy_and_total()
    busy = (after[0] - before[0]) / max(1, after[1] - before[1])
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "load_average_before": round(os.getloadavg()[0], 1),
        "cores_busy_before_percent": round(100 * busy),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def note(text: str) -> None:
    """A line for who waits."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def show(result: Result) -> str:
    """The result as text, with a Markdown table for each table."""
    lines = [f"## {result.benchmark}", "", result.question, ""]
    lines += [f"- {name}: {value}" for name, value in {**result.machine, **result.conditions}.items()]
    for table in result.tables:
        lines += ["", f"### {table.title}", "", markdown(table.rows)]
    lines += ["", *(f"- {finding}" for finding in result.findings), ""]
    return "\n".join(lines)


def markdown(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; columns are the keys of the first row."""
    if not rows:
        return "(nothing)"
    columns = list(rows[0])
    texts = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[at]) for line in texts)) for at, column in enumerate(columns)]
    head = [column.ljust(width) for column, width in zip(columns, widths, strict=True)]
    rule = ["-" * width for width in widths]
    body = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in texts]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])


def write(result: Result, folder: Path = FOLDER) -> Path:
    """Write the result as JSON; the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.benchmark}.json"
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")
    return path


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return "-" if cell is None else str(cell)


def _busy_and_total() -> tuple[int, int]:
    ticks = [int(part) for part in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
