"""`etcd-snapshot`: a copy of the cluster's state for the day it is lost."""

from __future__ import annotations

import hashlib

import click

from talos.cli import inputs
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import reach
from talos.cli.waiting import seconds

DESCRIPTION = """\
Save etcd's data to a file with mode 0600, over any control plane whose etcd is well. The file appears only when it is
whole, by the checksum at its end. It holds every Secret of Kubernetes: encrypt it before it goes anywhere.

  python -m talos etcd-snapshot --address 10.0.0.2 --output etcd.snapshot

`bootstrap --recover etcd.snapshot` starts a cluster from it."""


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="15m")
@click.option("--output", required=True, metavar="FILE", help="where to write it")
def command(options: MachineOptions, *, output: str) -> int:
    """Write the file; prints one JSON object."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))

    def take() -> dict[str, object]:
        digest, size = hashlib.sha256(), 0
        with inputs.private_file(output) as file, machine.configured() as client:
            for chunk in client.etcd_snapshot():
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        return {"node": machine.name, "file": output, "bytes": size, "sha256": digest.hexdigest()}

    inputs.print_result(watch.until("for the snapshot", take))
    return 0
