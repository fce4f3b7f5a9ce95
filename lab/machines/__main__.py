"""`python -m lab.machines`: run a rack of emulated Talos machines, and control it.

Run it where the machines' addresses are: in the lab's network namespace, or on loopback. An example of a rack:

    cluster: recorded                 # or kwok: nodes appear in this lab's cluster
    factory: {host: 198.18.0.1, port: 8089}
    machines:
      - {name: cp-1, address: 198.18.49.10, pod_cidr: 198.18.1.0/24}
      - {name: hgx-1, address: 198.18.49.11, pod_cidr: 198.18.2.0/24, hardware: hgx-h200}
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from lab.errors import LabError
from lab.machines.admin import AdminServer, ask
from lab.machines.checker import CheckerProgram
from lab.machines.cluster_hooks import Cluster, RecordedCluster
from lab.machines.faults import KINDS, POINTS
from lab.machines.kwok_cluster import KwokCluster
from lab.machines.rack import Rack
from lab.machines.spec import load_rack
from lab.paths import Lab


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 with what to do about it, where something is wrong."""
    arguments = _parser().parse_args(argv)
    lab = Lab.from_environment()
    folder = arguments.folder or lab.home / "machines"
    try:
        if arguments.command == "run":
            return _run(lab, arguments.rack, folder)
        request = {"machine": arguments.machine, "action": arguments.command}
        if arguments.command == "power":
            request["action"] = arguments.state
        if arguments.command == "fault":
            given = {
                name: getattr(arguments, name)
                for name in ("kind", "seconds", "calls", "code", "message", "at", "times")
            }
            request["fault"] = {name: value for name, value in given.items() if value is not None}
        for machine in ask(folder, request):
            print(json.dumps(machine))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run(lab: Lab, description: Path, folder: Path) -> int:
    spec = load_rack(description)
    cluster: Cluster = KwokCluster(lab) if spec.cluster == "kwok" else RecordedCluster()
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m lab.machines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="the rack's folder (default: machines in the lab's)")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a rack until SIGTERM")
    run.add_argument("rack", type=Path, help="its description, YAML or JSON")
    for name, text in (
        ("show", "show the state of the machines"),
        ("power", "switch machines on or off"),
        ("fault", "make a machine fail"),
        ("clear", "end all faults of a machine"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("machine", nargs="?" if name == "show" else None, default="all", help="a name, or all")
        if name == "power":
            command.add_argument("state", choices=("on", "off", "cycle"))
        if name == "fault":
            command.add_argument("kind", choices=KINDS)
            command.add_argument("--seconds", type=float)
            command.add_argument(
                "--calls", nargs="*", help="methods such as Bootstrap, or `connect` for the whole port"
            )
            command.add_argument("--code", help="gRPC status of refused calls (default UNAVAILABLE)")
            command.add_argument("--message")
            command.add_argument("--at", choices=POINTS)
            command.add_argument("--times", type=int, help="how often (default: until cleared)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
