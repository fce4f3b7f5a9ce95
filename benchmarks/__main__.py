"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all; `--list` says which there are."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Protocol

from benchmarks import (
    engine_cost,
    gateway_latency,
    many_sites,
    proof,
    report,
    resource_counts,
    routing,
    site_preview,
    state_options,
)
from benchmarks.report import Result
from lab.cluster import network
from lab.errors import LabError
from lab.paths import Lab
from lab.site import down, up


class Benchmark(Protocol):
    """What a module offers to be a benchmark; `run` finds the lab's control plane up unless NEEDS_LAB is False."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, lab: Lab, arguments: argparse.Namespace) -> Result: ...


BENCHMARKS: dict[str, Benchmark] = {
    "engine_cost": engine_cost,
    "routing": routing,
    "gateway_latency": gateway_latency,
    "proof": proof,
    "many_sites": many_sites,
    "resource_counts": resource_counts,
    "site_preview": site_preview,
    "state_options": state_options,
}


def main(argv: list[str] | None = None) -> int:
    """Run benchmarks; exit status 1 for what the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measurements on this machine's lab.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--list", action="store_true", help="say what there is and stop")
    for name, benchmark in BENCHMARKS.items():
        benchmark.add_arguments(parser.add_argument_group(name, benchmark.HELP))  # type: ignore[arg-type]
    arguments = parser.parse_args(argv)
    if arguments.list:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:18}{benchmark.HELP}")
        return 0
    try:
        _run(arguments)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        raise LabError(f"no benchmark {', '.join(unknown)}", fix=f"name one of {', '.join(BENCHMARKS)}")
    lab = Lab.from_environment()
    names = arguments.names or list(BENCHMARKS)
    needed = any(getattr(BENCHMARKS[name], "NEEDS_LAB", True) for name in names)
    was_up = not needed or network.owner(lab) == lab.home
    if needed:
        up.bring_up(lab)
    try:
        for name in names:
            conditions = report.machine()
            result = replace(BENCHMARKS[name].run(lab, arguments), machine=conditions)
            print(report.show(result))
            print(f"written to {report.write(result)}\n", file=sys.stderr)
    finally:
        if not was_up:
            down.take_down(lab)


if __name__ == "__main__":
    sys.exit(main())
