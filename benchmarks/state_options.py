"""What the engine's options for a state in files do to `up`: CPU and bytes written."""

from __future__ import annotations

from collections.abc import Mapping

import click

from benchmarks.costs import Cost
from benchmarks.engine_cost import NO_CHECKPOINTS, Stack
from benchmarks.report import Result, Row, Table, note
from lab import deploy
from lab.paths import Lab

HELP = "`up` with each of the engine's options for a state in files"
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": {"PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true"},
    "PULUMI_DIY_BACKEND_GZIP": {"PULUMI_DIY_BACKEND_GZIP": "true"},
    "PULUMI_DIY_BACKEND_ZSTD": {"PULUMI_DIY_BACKEND_ZSTD": "true"},
    "PULUMI_SKIP_CHECKPOINTS": NO_CHECKPOINTS,
}


PARAMETERS = (
    click.Option(["--state-objects"], type=int, default=300, help="state_options: number of objects (default: 300)"),
)


def run(lab: Lab, *, state_objects: int) -> Result:
    """Raises LabError when a command fails."""
    deploy.deploy(lab)
    rows = [_row(name, _measured(lab, state_objects, name)) for name in OPTIONS]
    return Result(
        benchmark="state_options",
        question="What do the engine's options for a state in files save in an `up`?",
        conditions={"objects": f"{state_objects} ConfigMaps of 300 bytes, a new stack each time"},
        tables=[Table(title="First `up`", rows=rows)],
        findings=[],
    )


def _measured(lab: Lab, objects: int, option: str) -> Cost:
    note(f"{objects} objects, option: {option}")
    with Stack(lab, objects) as stack:
        return stack.pulumi("up", "--yes", "--skip-preview", extra=OPTIONS[option])


def _row(option: str, cost: Cost) -> Row:
    return {
        "option": option,
        "CPU s": round(cost.cpu_total_s, 1),
        "engine CPU s": round(cost.cpu_s["engine"], 1),
        "written MB": round(cost.written / 1e6, 1),
    }
