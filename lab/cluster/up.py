"""`lab up`: bring the emulated cluster up, or what is missing of it. A second run changes nothing and is quick."""

from __future__ import annotations

import argparse

from lab.cluster import api, assigner, controlplane, credentials, dns, kubeproxy, network, nodes, supervisor, volumes
from lab.paths import Lab
from lab.progress import Progress

HELP = "bring the emulated cluster up, or mend what is missing of it"
DEFAULT_HGX_NODES = 4
_READY_WITHIN_S = 120


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
        progress = Progress("up", total=5)
        with progress.step("network"):
            network.ensure(lab)
        with progress.step("control plane"):
            controlplane.create(lab)
            kubeproxy.write_settings(lab)
            supervisor.ensure(lab)
            controlplane.wait_ready(lab, _READY_WITHIN_S)
        with progress.step("nodes"):
            nodes.ensure(lab, machines)
        with progress.step("cluster services"):
            apply_services(lab)
    return 0


def apply_services(lab: Lab) -> None:
    """kube-proxy's and the assigner's accounts, the StorageClass, and cluster DNS."""
    with api.connect(lab) as connection:
        api.apply(connection, assigner.role(), volumes.storage_class(), *dns.manifests(lab.network))
        credentials.ensure(lab, connection, kubeproxy.ACCOUNT, role=kubeproxy.ROLE)
        credentials.ensure(lab, connection, assigner.ACCOUNT, role=assigner.ACCOUNT)
