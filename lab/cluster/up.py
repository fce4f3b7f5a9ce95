"""`lab up`: bring the emulated cluster up, or what is missing of it. A second run changes nothing and is quick."""

from __future__ import annotations

import argparse

from lab.cluster import controlplane, network, nodes
from lab.paths import Lab
from lab.progress import Progress

HELP = "bring the emulated cluster up, or mend what is missing of it"
DEFAULT_HGX_NODES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hgx",
        type=int,
        default=DEFAULT_HGX_NODES,
        metavar="N",
        help="number of HGX H200 nodes, each with 8 GPUs (default %(default)s)",
    )


def run(lab: Lab, arguments: argparse.Namespace) -> int:
    """Raises `LabError` when root, a tool, or the lab's index on this machine is not to be had."""
    machines = nodes.machines(arguments.hgx)
    network.require_root()
    with network.machine_lock(lab):
        network.require_own(lab)
        progress = Progress("up", total=3)
        with progress.step("network"):
            network.ensure(lab)
        with progress.step("control plane"):
            controlplane.ensure(lab)
        with progress.step("nodes"):
            nodes.ensure(lab, machines)
    return 0
