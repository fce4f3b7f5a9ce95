"""`python -m lab.machines`: run a rack of emulated Talos machines, and control it.

Run it where the machines' addresses are: in the lab's network namespace, or on loopback. An example of a rack:

    cluster: recorded                 # or kwok: nodes appear in this lab's cluster
    factory: {host: 198.18.0.1, port: 8089}
    machines:
      - {name: cp-1, address: 198.18.49.10, pod_cidr: 198.18.1.0/24}
      - {name: hgx-1, address: 198.18.49.11, pod_cidr: 198.18.2.0/24, hardware: hgx-h200}
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click

from floor import command_line
from lab.errors import LabError
from lab.machines.admin import AdminServer, ask
from lab.machines.checker import CheckerProgram
from lab.machines.cluster_hooks import ClusterHooks, RecordedCluster
from lab.machines.faults import KINDS, POINTS
from lab.machines.kwok_cluster import KwokCluster
from lab.machines.rack import Rack
from lab.machines.spec import load_rack
from lab.paths import Lab


class _Group(command_line.Verbatim, command_line.Group):
    pass


@click.group(cls=_Group, help=__doc__)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="the rack's folder (default: machines in the lab's)",
)
@click.pass_context
def command(context: click.Context, *, folder: Path | None) -> None:
    context.obj = folder or Lab.from_environment().home / "machines"


@command.command()
@click.argument("rack", type=click.Path(path_type=Path))
@click.pass_obj
def run(folder: Path, *, rack: Path) -> int:
    """Run the RACK of a description, YAML or JSON, until SIGTERM."""
    return _run(Lab.from_environment(), rack, folder)


@command.command()
@click.argument("machine", default="all")
@click.pass_obj
def show(folder: Path, *, machine: str) -> None:
    """Show the state of the machines: of one by its name, or of all."""
    _ask(folder, machine, "show")


@command.command()
@click.argument("machine")
@click.argument("state", type=click.Choice(["on", "off", "cycle"]))
@click.pass_obj
def power(folder: Path, *, machine: str, state: str) -> None:
    """Switch machines on or off: one by its name, or all."""
    _ask(folder, machine, state)


@command.command()
@click.argument("machine")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--seconds", type=float)
@click.option("--calls", cls=command_line.Several, help="methods such as Bootstrap, or `connect` for the whole port")
@click.option("--code", help="gRPC status of refused calls (default UNAVAILABLE)")
@click.option("--message")
@click.option("--at", type=click.Choice(POINTS))
@click.option("--names", cls=command_line.Several, help="services or kernel modules, of the faults that need them")
@click.option("--times", type=int, help="how often (default: until cleared)")
@click.pass_obj
def fault(folder: Path, /, *, machine: str, kind: str, **options: Any) -> None:
    """Make a machine fail: one by its name, or all."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    _ask(folder, machine, "fault", {"kind": kind, **given})


@command.command()
@click.argument("machine")
@click.pass_obj
def clear(folder: Path, *, machine: str) -> None:
    """End all faults of a machine: of one by its name, or of all."""
    _ask(folder, machine, "clear")


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 with what to do about it, where something is wrong."""
    try:
        return command_line.run(command, argv, name="python -m lab.machines")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _ask(folder: Path, machine: str, action: str, fault: dict[str, Any] | None = None) -> None:
    request = {"machine": machine, "action": action} | ({"fault": fault} if fault else {})
    for answer in ask(folder, request):
        print(json.dumps(answer))


def _run(lab: Lab, description: Path, folder: Path) -> int:
    spec = load_rack(description)
    cluster: ClusterHooks = KwokCluster(lab) if spec.cluster == "kwok" else RecordedCluster()
    rack = Rack(
        spec, folder, checker=CheckerProgram(lab.bin / "talos-checker"), cluster=cluster, networks=(lab.network.whole,)
    )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    admin = AdminServer(rack)
    with rack:
        factory = f", image factory at {rack.factory.url}" if rack.factory else ""
        print(f"{len(rack.machines)} emulated machines{factory}, folder {folder}", flush=True)
        stopping.wait()
    admin.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
