"""A cluster made of a lab's machines without the program: configs by `talos`, applied by its commands.

For tests that need a cluster and nothing on it. What a site's file would say is fixed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kubernetes import client

from lab.cluster import api, controlplane
from lab.cluster.parts import name_of, status_of
from lab.machines import lab_rack
from lab.paths import CHECKOUT, Lab
from lab.site import up
from talos.cluster import TalosCluster
from talos.cni import External
from talos.documents.v1alpha1 import Install
from talos.factory.client import ImageFactory
from talos.factory.schematic import Schematic
from talos.factory.site import FactorySite
from talos.hgx import HGXProfile
from talos.machines import ClusterDescription, NodeDescription, machine_configs
from talos.secrets import bundle as secrets
from talos.secrets.talosconfig import Role, issue
from tests.lab.waiting import PATIENCE_S, eventually

TALOS_VERSION = "v1.13.9"
KUBERNETES_VERSION = "v1.36.3"
_SPARES = 1


def bring_up_cluster(lab: Lab, *, hgx: int) -> None:
    """`lab up`, and of its machines a cluster of `cp-1` and `hgx-1` to `hgx-N`; one machine more is in the rack.

    If there is a cluster already, its machines are only switched on.
    """
    up.bring_up(lab, hgx=hgx + _SPARES)
    if not controlplane.is_created(lab):
        ByHand(lab, hgx=hgx).bootstrap()
    with api.connect(lab) as connection:
        core = client.CoreV1Api(connection)
        eventually(lambda: _ready(core) == {lab_rack.CONTROL_PLANE, *(f"hgx-{n + 1}" for n in range(hgx))})
        apps = client.AppsV1Api(connection)
        eventually(lambda: status_of(apps.read_namespaced_deployment("coredns", "kube-system")).ready_replicas)


class ByHand:
    """What an engineer would do manually with `python -m talos`. Secrets and configs are kept in the lab's folder."""

    def __init__(self, lab: Lab, *, hgx: int) -> None:
        self.lab = lab
        self.addresses = {
            machine["name"]: machine["address"] for machine in lab_rack.description(lab.network, hgx)["machines"]
        }
        self.folder = lab.home / "by-hand"
        self.talosconfig = self.folder / "talosconfig"

    def bootstrap(self) -> None:
        """From machines in maintenance mode to an API server that answers, with new secrets."""
        bundle = secrets.generate()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "secrets.yaml").write_text(bundle.export())
        self.talosconfig.write_text(self.login("os:admin"))
        for name, config in self.configs(bundle).items():
            (self.folder / f"{name}.yaml").write_bytes(config)
        with ThreadPoolExecutor() as together:
            list(together.map(self.apply, self.addresses))
        self.talos("bootstrap", lab_rack.CONTROL_PLANE)
        (self.folder / "kubeconfig").write_text(self.talos("kubeconfig", lab_rack.CONTROL_PLANE))
        # Bootstrap does not wait for the API server, whose kubeconfig for people comes with it.
        controlplane.wait_ready(self.lab, PATIENCE_S)

    def login(self, role: Role) -> str:
        """A talosconfig with this role, once there are secrets."""
        bundle = secrets.load((self.folder / "secrets.yaml").read_text())
        endpoints = (self.addresses[lab_rack.CONTROL_PLANE],)
        return issue(bundle, context="lab", endpoints=endpoints, role=role).render()

    def apply(self, name: str) -> None:
        """Give a machine its config, from maintenance mode or not."""
        config = ("--insecure", "--mode", "auto", "--config", str(self.folder / f"{name}.yaml"))
        self.talos("apply", name, *config, *(("--no-wait",) if name != lab_rack.CONTROL_PLANE else ()))

    def talos(self, command: str, name: str, *options: str) -> str:
        """One command on one machine; its output."""
        where = ("--address", self.addresses[name], "--name", name, "--talosconfig", str(self.talosconfig))
        done = subprocess.run(
            [sys.executable, "-m", "talos", command, *where, "--timeout", "120s", *options],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def configs(self, bundle: secrets.SecretsBundle) -> dict[str, bytes]:
        """A config for each machine; the factory is made to know their schematics."""
        plan = self.lab.network
        profile = HGXProfile()
        with ImageFactory(FactorySite(f"http://{plan.image_factory}:{lab_rack.FACTORY_PORT}")) as factory:
            plain, gpus = (
                self._install(factory, Schematic(extensions=extensions)) for extensions in ((), profile.extensions)
            )
        return machine_configs(
            ClusterDescription(
                cluster=TalosCluster(
                    name="by-hand",
                    endpoint=f"https://{self.addresses[lab_rack.CONTROL_PLANE]}:6443",
                    kubernetes_version=KUBERNETES_VERSION,
                    secrets=bundle,
                    cni=External(),
                    pod_subnets=(str(plan.pods),),
                    service_subnets=(str(plan.services),),
                    allow_scheduling_on_control_planes=True,
                ),
                talos_version=TALOS_VERSION,
                nodes=tuple(
                    NodeDescription(name=name, role="controlplane", install=plain)
                    if name == lab_rack.CONTROL_PLANE
                    else NodeDescription(name=name, role="worker", install=gpus, profile=profile)
                    for name in self.addresses
                ),
            )
        )

    def _install(self, factory: ImageFactory, schematic: Schematic) -> Install:
        known = factory.post_schematic(schematic)
        return Install(disk="/dev/nvme0n1", image=factory.site.assets(known, TALOS_VERSION).installer)


def _ready(core: client.CoreV1Api) -> set[str]:
    return {
        name_of(node)
        for node in core.list_node().items
        if any(
            condition.type == "Ready" and condition.status == "True" for condition in status_of(node).conditions or ()
        )
    }


def kubeconfig_of_machine(lab: Lab) -> Path:
    """The kubeconfig that came over the machine API."""
    return lab.home / "by-hand" / "kubeconfig"
