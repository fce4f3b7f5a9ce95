"""`etcd-snapshot`: a copy of the cluster's state for the day it is lost."""

from __future__ import annotations

import argparse
import hashlib

from talos.cli import inputs
from talos.cli.reaching import reach
from talos.cli.waiting import seconds

HELP = "save etcd's data to a file"
DESCRIPTION = """\
Save etcd's data to a file with mode 0600, over any control plane whose etcd is well. The file appears only when it is
whole, by the checksum at its end. It holds every Secret of Kubernetes: encrypt it before it goes anywhere.

  python -m talos etcd-snapshot --address 10.0.0.2 --output etcd.snapshot

`bootstrap --recover etcd.snapshot` starts a cluster from it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    inputs.add_machine_arguments(parser, timeout="15m")
    parser.add_argument("--output", required=True, metavar="FILE", help="where to write it")


def run(arguments: argparse.Namespace) -> int:
    """Write the file; prints one JSON object."""
    machine = reach(arguments)
    watch = machine.watch(seconds(arguments.timeout))

    def take() -> dict[str, object]:
        digest, size = hashlib.sha256(), 0
        with inputs.private_file(arguments.output) as file, machine.configured() as client:
            for chunk in client.etcd_snapshot():
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        return {"node": machine.name, "file": arguments.output, "bytes": size, "sha256": digest.hexdigest()}

    inputs.print_result(watch.until("for the snapshot", take))
    return 0
