"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all; `--list` lists them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import click

from benchmarks import (
    cold_start,
    engine_cost,
    front_end,
    gateway_cpu,
    gateway_latency,
    gpu,
    ledger_intake,
    many_sites,
    many_tenants,
    orders,
    portal_pages,
    proof,
    published,
    reconciliation,
    report,
    resource_counts,
    routing,
    site_preview,
    state_options,
    tiers,
)
from floor import command_line
from lab.cluster import network
from lab.errors import LabError
from lab.paths import Lab
from lab.site import down, up

# Each has HELP, PARAMETERS, and `run`, which takes their values by name; it finds the lab's control plane up unless
# NEEDS_LAB is False.
BENCHMARKS: dict[str, ModuleType] = {
    "engine_cost": engine_cost,
    "routing": routing,
    "gateway_latency": gateway_latency,
    "gateway_cpu": gateway_cpu,
    "front_end": front_end,
    "proof": proof,
    "published": published,
    "gpu": gpu,
    "many_sites": many_sites,
    "many_tenants": many_tenants,
    "resource_counts": resource_counts,
    "site_preview": site_preview,
    "cold_start": cold_start,
    "state_options": state_options,
    "tiers": tiers,
    "ledger_intake": ledger_intake,
    "orders": orders,
    "reconciliation": reconciliation,
    "portal_pages": portal_pages,
}


@click.command(
    cls=command_line.Command,
    params=[parameter for benchmark in BENCHMARKS.values() for parameter in benchmark.PARAMETERS],
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "lists", is_flag=True, help="show what there is and stop")
def command(*, names: tuple[str, ...], lists: bool, **options: Any) -> int:
    """Measurements on this machine's lab: all, or those that are named."""
    if lists:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:18}{benchmark.HELP}")
        return 0
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise LabError(f"no benchmark {', '.join(unknown)}", fix=f"name one of {', '.join(BENCHMARKS)}")
    _run(names or tuple(BENCHMARKS), options)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run benchmarks; exit status 1 for what the user can fix."""
    try:
        return command_line.run(command, argv, name="python -m benchmarks")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(names: Sequence[str], options: Mapping[str, Any]) -> None:
    lab = Lab.from_environment()
    needed = any(getattr(BENCHMARKS[name], "NEEDS_LAB", True) for name in names)
    was_up = not needed or network.owner(lab) == lab.home
    if needed:
        up.bring_up(lab)
    try:
        for name in names:
            conditions = report.machine()
            own = {parameter.name: options[parameter.name] for parameter in BENCHMARKS[name].PARAMETERS}
            result = replace(BENCHMARKS[name].run(lab, **own), machine=conditions)
            print(report.show(result))
            print(f"written to {report.write(result)}\n", file=sys.stderr)
    finally:
        if not was_up:
            down.take_down(lab)


if __name__ == "__main__":
    sys.exit(main())
