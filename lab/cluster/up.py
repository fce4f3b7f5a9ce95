"""`lab up`: bring the emulated cluster up, or what is missing of it. A second run changes nothing and is quick."""

from __future__ import annotations

import argparse
import time

from kubernetes import client

from lab.cluster import api, assigner, controlplane, credentials, dns, kubeproxy, network, nodes, supervisor, volumes
from lab.controllers import installation
from lab.errors import LabError
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
    parser.add_argument(
        "--without-controllers",
        dest="controllers",
        action="store_false",
        help="leave Envoy Gateway and the AI gateway out: a bare cluster",
    )


def run(lab: Lab, arguments: argparse.Namespace) -> int:
    bring_up(lab, hgx=arguments.hgx, controllers=arguments.controllers)
    return 0


def bring_up(lab: Lab, *, hgx: int = DEFAULT_HGX_NODES, controllers: bool = True) -> None:
    """Raises `LabError` when root, a tool, or the lab's index on this machine is not to be had."""
    machines = nodes.machines(hgx)
    network.require_root()
    with network.machine_lock(lab):
        network.require_own(lab)
        controlplane.require_tools(lab)
        progress = Progress("up", total=5 if controllers else 4)
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
            _wait_for_dns(lab)
        if controllers:
            with progress.step("gateway controllers"):
                installation.install(lab)


def apply_services(lab: Lab) -> None:
    """kube-proxy's and the assigner's accounts, the StorageClass, and cluster DNS."""
    with api.connect(lab) as connection:
        api.apply(connection, assigner.role(), volumes.storage_class(), *dns.manifests(lab.network))
        credentials.ensure(lab, connection, kubeproxy.ACCOUNT, role=kubeproxy.ROLE)
        credentials.ensure(lab, connection, assigner.ACCOUNT, role=assigner.ACCOUNT)


def _wait_for_dns(lab: Lab) -> None:
    """What comes next looks names up from its first moment on."""
    deadline = time.monotonic() + _READY_WITHIN_S
    with api.connect(lab) as connection:
        apps = client.AppsV1Api(connection)
        while not apps.read_namespaced_deployment("coredns", dns.NAMESPACE).status.ready_replicas:
            if time.monotonic() > deadline:
                raise LabError(
                    f"cluster DNS is not ready after {_READY_WITHIN_S} s",
                    fix="`python -m lab logs pod-runner` and `python -m lab logs kube-system/coredns` say why",
                )
            time.sleep(0.2)
