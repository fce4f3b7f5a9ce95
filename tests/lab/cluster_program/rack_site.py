"""A rack of emulated machines, and the site that says of them what a user would."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.machines.checker import CheckerProgram
from lab.machines.cluster_hooks import ClusterHooks
from lab.machines.faults import Fault
from lab.machines.machine import Machine
from lab.machines.rack import Rack
from lab.machines.spec import Hardware, MachineSpec, RackSpec
from lab.paths import Lab
from tests.unit.machines.emulated_rack import QUICK, eventually, loopback

CANARY = "canary-0d5c7e"


@dataclass
class RackSite:
    """The rack and the site's document; `cluster.machines.nodes` names the machines."""

    rack: Rack
    site: dict[str, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[str, Any]:
        """`cluster.machines.nodes` of the site."""
        nodes: dict[str, Any] = self.site["cluster"]["machines"]["nodes"]
        return nodes

    def machine(self, node: str) -> Machine:
        """The machine behind a node of the site."""
        address = self.nodes[node]["address"]
        return next(machine for machine in self.rack.machines.values() if machine.address == address)

    def fault(self, node: str, fault: Fault) -> None:
        self.machine(node).faults.set((fault,))


def new_rack_site(folder: Path, cluster: ClusterHooks, *hardware: Hardware) -> RackSite:
    """Machines in maintenance mode and a site of a control plane `cp-1`, and workers for the next, all started."""
    addresses = loopback(len(hardware))
    machines = tuple(
        MachineSpec(name=f"m{place}", address=address, pod_cidr=f"10.244.{place}.0/24", hardware=kind)
        for place, (address, kind) in enumerate(zip(addresses, hardware, strict=True))
    )
    rack = Rack(
        RackSpec(machines=machines, speed=replace(QUICK, boot_s=0.3)),
        folder,
        checker=CheckerProgram(Lab.from_environment().bin / "talos-checker"),
        cluster=cluster,
    )
    made = RackSite(rack, _site(rack, addresses, hardware))
    rack.start()
    for machine in rack.machines.values():
        eventually(lambda: machine.stage == "maintenance", what=f"{machine.name} in maintenance mode")  # noqa: B023
    return made


def _site(rack: Rack, addresses: list[str], hardware: tuple[Hardware, ...]) -> dict[str, Any]:
    assert rack.factory is not None
    nodes: dict[str, Any] = {"cp-1": {"role": "controlplane", "address": addresses[0], "schedulable": True}}
    for place, (address, kind) in enumerate(zip(addresses[1:], hardware[1:], strict=True), start=1):
        role = "hgx" if kind == "hgx-h200" else "worker"
        nodes[f"{role}-{place}"] = {"role": role, "address": address}
    network = addresses[0].rpartition(".")[0]
    return {
        "name": "lab",
        "cluster": {
            "machines": {
                "endpoint": f"https://{addresses[0]}:6443",
                "image_factory": rack.factory.url,
                "networks": {"nodes": [f"{network}.0/24"]},
                "cni": "external",
                "secrets": "disposable",
                "install_disk": {"device": "/dev/nvme0n1"},
                "registries": {"auth": {"registry.example": {"username": "u", "password_secret": "registry-password"}}},
                "nodes": nodes,
            }
        },
        "gateway": {"controllers": "external", "port": 80},
        "models": {},
        "tenants": {},
    }
