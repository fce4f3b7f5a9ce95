"""`bootstrap`: make a cluster's first etcd member, exactly once in the cluster's life."""

from __future__ import annotations

from pathlib import Path

import click

from talos.api.client import MachineClient
from talos.api.errors import AlreadyDoneError
from talos.cli import inputs
from talos.cli.failures import InputError
from talos.cli.inputs import Address
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import Reach, reach
from talos.cli.waiting import PendingError, Watch, seconds

DESCRIPTION = """\
Start etcd's first member on a control plane, and with it Kubernetes. Once in a cluster's life: if etcd
already runs, the command changes nothing and reports that.

A second bootstrap on a machine without etcd data, as after its replacement, would create a second cluster. Name the
other control planes with --peer: if etcd runs on one of them, the cluster exists, and this machine joins it by
itself. The command waits for a peer that does not answer, because what it has is unknown.

`bootstrap` in the result:
  done       started now
  before     this machine's etcd ran already
  elsewhere  the cluster exists on the machine `where`

  python -m talos bootstrap --address 10.0.0.2 --peer cp-2=10.0.0.3 --peer cp-3=10.0.0.4

With --recover FILE, etcd starts from a snapshot of `etcd-snapshot`: only for a cluster that has lost its etcd."""

_CHUNK_BYTES = 1 << 20


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="15m")
@click.option("--peer", multiple=True, metavar="[NAME=]HOST[:PORT]", help="another control plane; repeatable")
@click.option("--recover", metavar="FILE", help="start etcd from this snapshot")
@click.option("--skip-hash-check", is_flag=True, help="the snapshot is a copy of etcd's file, without its checksum")
def command(options: MachineOptions, *, peer: tuple[str, ...], recover: str | None, skip_hash_check: bool) -> int:
    """Bootstrap; prints one JSON object."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))
    peers = [_peer(text, machine) for text in peer]
    snapshot = Path(recover) if recover else None
    if snapshot and not snapshot.is_file():
        raise InputError(f"snapshot: {snapshot} is no file", fix="give the file that etcd-snapshot wrote")
    outcome = watch.until(
        "to bootstrap", lambda: _attempt(machine, peers, watch, snapshot, skip_hash_check=skip_hash_check)
    )
    if outcome["bootstrap"] != "elsewhere":
        watch.until("for etcd", lambda: _etcd_runs(machine))
    inputs.print_result({"node": machine.name, **outcome})
    return 0


def _attempt(
    machine: Reach, peers: list[Reach], watch: Watch, snapshot: Path | None, *, skip_hash_check: bool
) -> dict[str, str]:
    with machine.configured() as client:
        if etcd_state(client) == "Running":
            return {"bootstrap": "before"}
        for peer in peers:
            with peer.configured() as other:
                if etcd_state(other) == "Running":
                    return {"bootstrap": "elsewhere", "where": peer.name}
        try:
            if snapshot:
                watch.say(f"uploading {snapshot}")
                _upload(client, snapshot)
            client.bootstrap(recover_etcd=snapshot is not None, recover_skip_hash_check=skip_hash_check)
        except AlreadyDoneError:
            return {"bootstrap": "before"}
    return {"bootstrap": "done"}


def etcd_state(client: MachineClient) -> str:
    """The state of the machine's etcd service; empty where it has none."""
    return next((service.state for service in client.services() if service.id == "etcd"), "")


def _etcd_runs(machine: Reach) -> None:
    with machine.configured() as client:
        state = etcd_state(client)
    if state != "Running":
        raise PendingError(f"etcd is {state or 'not there'}")


def _upload(client: MachineClient, snapshot: Path) -> None:
    with snapshot.open("rb") as file:
        client.etcd_recover(iter(lambda: file.read(_CHUNK_BYTES), b""))


def _peer(text: str, machine: Reach) -> Reach:
    name, equals, address = text.rpartition("=")
    parsed = Address.parse(address)
    return machine.peer(name if equals else parsed.host, parsed, through=machine.through)
