"""`lab status`: what runs, the state of the machines, and the memory in use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from lab.cluster import controlplane, network, processes
from lab.errors import LabError
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import Lab
from lab.site import guard

_HEADINGS = ("COMPONENT", "STATE", "PID", "RESTARTS", "MEMORY")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; memory in bytes, pods' programs summed up in one row."""

    component: str
    state: str
    pid: int | None
    restarts: int
    memory_bytes: int


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print it as JSON, memory in bytes")
@click.pass_obj
def command(lab: Lab, *, as_json: bool) -> int:
    """Show the lab's processes and machines: state, process id, restarts, memory.

    The exit status is 0 if all of the lab runs and its API server, if it has one yet, is ready; else 1.
    """
    table = rows(lab)
    expected = controlplane.switch(lab).exists()
    ready = bool(table) and controlplane.is_ready(lab)
    if as_json:
        shown = {"ready": ready, "components": [asdict(row) for row in table], "machines": _machines(lab)}
        print(json.dumps(shown, indent=2))
    elif table:
        print(render(table))
        for machine in _machines(lab):
            print(f"machine {machine['name']} at {machine['address']}: {_stage(machine)}")
        if expected:
            print(f"API server: {'ready' if ready else 'not ready'}, kubeconfig {lab.kubeconfig}")
        else:
            print("API server: none runs; `pulumi up` brings one up on the control plane's machine")
    else:
        print(f"lab {lab.index} of {lab.home} is down; `python -m lab up` brings it up")
    needed = [row for row in table if expected or not row.state.startswith("waits for")]
    return 0 if table and ready is expected and all(row.state == "running" for row in needed) else 1


def _machines(lab: Lab) -> list[dict[str, Any]]:
    try:
        return ask(lab_rack.folder(lab), {"machine": "all", "action": "show"})
    except LabError:
        return []


def _stage(machine: dict[str, Any]) -> str:
    if machine["power"] == "off":
        return "off"
    node = f", node {machine['hostname']} is ready" if machine["node_ready"] else ""
    return f"{machine['stage']}, Talos {machine['talos']}{node}"


def rows(lab: Lab) -> list[Row]:
    """The supervisor and its components as they are now; empty when the lab is down."""
    recorded = guard.read_status(lab).get("components", {})
    listed = [
        Row(
            component=name,
            state=entry["state"],
            pid=entry["pid"],
            restarts=entry["restarts"],
            memory_bytes=processes.memory_bytes(entry["pid"]) if entry["pid"] else 0,
        )
        for name, entry in recorded.items()
    ]
    if not listed and network.owner(lab) != lab.home:
        return []
    pid = guard.pid(lab)
    first = Row(
        component="supervisor",
        state="running" if pid else "dead: the guard starts another, or `python -m lab up`",
        pid=pid,
        restarts=0,
        memory_bytes=processes.memory_bytes(pid) if pid else 0,
    )
    known = {row.pid for row in (first, *listed)}
    pods = network.namespace_processes(lab) - known
    rest = Row(
        component=f"pods' programs ({len(pods)} processes)",
        state="running",
        pid=None,
        restarts=0,
        memory_bytes=sum(processes.memory_bytes(pid) for pid in pods),
    )
    return [first, *listed, *([rest] if pods else [])]


def render(table: Sequence[Row]) -> str:
    """The table as text, with a line for the sum of memory."""
    cells = [_HEADINGS, *(_cells(row) for row in table)]
    total = sum(row.memory_bytes for row in table)
    cells.append(("together", "", "", "", f"{total / 2**20:.0f} MiB"))
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: Row) -> tuple[str, ...]:
    pid = str(row.pid) if row.pid else "-"
    return (row.component, row.state, pid, str(row.restarts), f"{row.memory_bytes / 2**20:.0f} MiB")
