"""`health` and `status`: the state of a machine, and waiting until it is healthy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from talos.api.client import MachineClient
from talos.api.results import EtcdMember, MachineStatus, Service
from talos.cli import inputs
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import reach
from talos.cli.volumes import setting_problems, volume_problems
from talos.cli.waiting import PendingError, seconds
from talos.hgx import required_services

DESCRIPTION = """\
Wait until a machine is healthy: it runs its config, Talos reports it ready, each of its services runs and is healthy,
the fabric manager runs where the image has it, each volume is ready, and, with --etcd-members, etcd has exactly that
many members, each with a vote. Reports on stderr what is missing. A node is not ready for Kubernetes before it has a
network: --allow-unmet nodeReady leaves that out.

  python -m talos health --address 10.0.0.2 --name cp-1 --etcd-members 3 --timeout 15m"""

STATUS_DESCRIPTION = """\
Show what a machine is and runs: its state, stage, Talos version, schematic, extensions and boot id.

  python -m talos status --address 10.0.0.11 --insecure     (--insecure: also in maintenance mode)"""

_RUNNING = "Running"
_WELL = {_RUNNING, "Finished", "Skipped"}


@click.command(cls=Command, help=STATUS_DESCRIPTION)
@machine_options(timeout="30s", maintenance=True)
def status(options: MachineOptions) -> int:
    """One look; prints one JSON object."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))

    def look() -> dict[str, Any]:
        with machine.contact(watch) as contact:
            return {"node": machine.name, "state": contact.state} | _reported(contact.client, contact.state)

    inputs.print_result(watch.until("for its status", look))
    return 0


def _reported(client: MachineClient, state: str) -> dict[str, Any]:
    status, version = client.machine_status(), client.version()
    result: dict[str, Any] = {"stage": status.stage, "ready": status.ready, "version": version.tag}
    if state == "maintenance":
        return result
    extensions = client.extensions()
    return result | {
        "schematic": next((extension.version for extension in extensions if extension.name == "schematic"), ""),
        "extensions": {extension.name: extension.version for extension in extensions if extension.name != "schematic"},
        "boot_id": client.boot_id(),
        "unmet": list(status.unmet),
    }


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="15m")
@click.option("--etcd-members", type=int, metavar="N", help="etcd has N members (control planes only)")
@click.option("--allow-unmet", multiple=True, metavar="CONDITION", help="may be missing; repeatable")
def command(options: MachineOptions, *, etcd_members: int | None, allow_unmet: tuple[str, ...]) -> int:
    """Wait; prints one JSON object."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))

    def look() -> dict[str, Any]:
        with machine.configured() as client:
            status, services = client.machine_status(), client.services()
            missing = [
                *_status_problems(status, frozenset(allow_unmet)),
                *service_problems(services, _required(client)),
                *volume_problems(client),
            ]
            # etcd's own answer makes sense only where the service is well.
            members = client.etcd_members() if etcd_members and not missing else ()
        if etcd_members and not missing:
            missing += _member_problems(members, etcd_members)
        if missing:
            raise PendingError("; ".join(missing))
        return {
            "node": machine.name,
            "healthy": True,
            "stage": status.stage,
            "services": [asdict(service) for service in services],
            "etcd_members": [asdict(member) for member in members],
        }

    inputs.print_result({**watch.until("to be well", look), "waited_s": round(watch.elapsed_s)})
    return 0


def what_is_missing(client: MachineClient, *, allowed: frozenset[str] = frozenset(), config: bytes = b"") -> list[str]:
    """Why a machine is not well, one phrase each; empty where it is. `allowed` may be unmet.

    config: volumes and kernel settings that it must have.
    """
    services = service_problems(client.services(), _required(client))
    of_config = [*volume_problems(client, config), *setting_problems(client, config)]
    return [*_status_problems(client.machine_status(), allowed), *services, *of_config]


def _required(client: MachineClient) -> tuple[str, ...]:
    return required_services(extension.name for extension in client.extensions())


def _status_problems(status: MachineStatus, allowed: frozenset[str]) -> list[str]:
    if status.stage != "running":
        return [f"it is {status.stage}"]
    if status.ready:
        return []
    return [unmet for unmet in status.unmet or ("it is not ready",) if unmet.partition(":")[0] not in allowed]


def service_problems(services: Iterable[Service], required: Iterable[str] = ()) -> list[str]:
    """What is wrong with a machine's services, one phrase each. required: those that must exist, and run."""
    by_id = {service.id: service for service in services}
    missing = [f"{name} does not exist" for name in required if name not in by_id]
    return [*missing, *_unwell(by_id.values(), frozenset(required))]


def _unwell(services: Iterable[Service], required: frozenset[str]) -> Iterator[str]:
    for service in services:
        if service.state not in ({_RUNNING} if service.id in required else _WELL):
            yield f"{service.id} is {service.state}" + (f": {service.message}" if service.message else "")
        elif service.healthy is False and service.state == _RUNNING:
            yield f"{service.id} is not healthy: {service.message}"


def _member_problems(members: tuple[EtcdMember, ...], expected: int) -> list[str]:
    problems = [f"etcd's member {member.hostname} has no vote yet" for member in members if member.is_learner]
    if len(members) != expected:
        names = ", ".join(sorted(member.hostname for member in members))
        problems.append(f"etcd has {len(members)} members instead of {expected}: {names}")
    return problems
