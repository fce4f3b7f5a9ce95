"""Racks for tests: on loopback addresses of their own, quick, and the configs, logins and clients that fit them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from lab.machines.checker import Checker, MachineChange, Verdict
from lab.machines.cluster_hooks import ClusterHooks, RecordedCluster
from lab.machines.rack import Rack
from lab.machines.spec import Hardware, MachineSpec, RackSpec, Speed
from talos.api.client import MachineClient, connect
from talos.api.results import Applied, ApplyMode
from talos.api.tls import FirstContact, MutualTls, Trust
from talos.cluster import MachineSettings, TalosCluster
from talos.cni import Flannel
from talos.documents.network import HostnameConfig
from talos.documents.v1alpha1 import Install
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from talos.machine_config import MachineConfig
from talos.secrets import bundle as secrets
from talos.secrets import pki
from talos.secrets.talosconfig import Role
from tests.unit.talos.talos_examples import entropy

QUICK = Speed(boot_s=0.01, install_s=0.02, services_s=0.01, going_down_s=0.01, retry_s=0.03, notices_s=0.1)
VERSION = "v1.13.9"
HOUR_S = 3600.0
_SERIAL = itertools.count(1)
_LIVE = ("debug", "cluster")
_LIVE_OF_MACHINE = (
    "ca",
    "certSANs",
    "install",
    "sysctls",
    "kubelet",
    "kernel",
    "nodeLabels",
    "nodeTaints",
    "nodeAnnotations",
)


def loopback(count: int) -> list[str]:
    """Loopback addresses that no other rack of this test run has."""
    process = os.getpid()
    start = 1 + 8 * (next(_SERIAL) % 31)
    return [f"127.{100 + process // 256 % 100}.{process % 256}.{start + offset}" for offset in range(count)]


class PlainChecker:
    """Replaces Talos's libraries: recognises a non-mapping, an incomplete config, and the commonest live changes."""

    def validate(self, config: bytes) -> Verdict:
        documents = list(yaml.safe_load_all(config))
        if not all(isinstance(document, dict) for document in documents):
            return Verdict(("not a machine config",), ())
        errors = tuple(f"unknown key {key}" for key in documents[0] if key.startswith("wrong"))
        return Verdict(errors, (), any("machine" in document for document in documents))

    def change(self, old: bytes, new: bytes) -> MachineChange:
        if old == new:
            return MachineChange(True, "", "")
        before, after = (self._rest(config) for config in (old, new))
        live = not old or before == after
        return MachineChange(
            live, "" if live else "this config change can't be applied in immediate mode\ndiff:\n", "-old\n+new\n"
        )

    def _rest(self, config: bytes) -> Any:
        base: dict[str, Any] = next(iter(yaml.safe_load_all(config)), {}) or {}
        machine = {key: value for key, value in base.get("machine", {}).items() if key not in _LIVE_OF_MACHINE}
        return {key: value for key, value in base.items() if key not in _LIVE} | {"machine": machine}


@dataclass
class Bench:
    """A rack and what is needed to talk to it; `cluster` stays empty where the rack has another one."""

    rack: Rack
    cluster: RecordedCluster
    bundle: secrets.SecretsBundle = field(repr=False)

    @property
    def image(self) -> str:
        """The installer of an empty schematic."""
        return self.installer(Schematic())

    def installer(self, schematic: Schematic, version: str = VERSION, *, signed: bool = False) -> str:
        """An installer's reference; the factory is made to know its schematic."""
        assert self.rack.factory is not None
        known, _ = self.rack.factory.content.add(schematic.canonical())
        suffix = "-secureboot" if signed else ""
        return f"{self.rack.factory.registry}/metal-installer{suffix}/{known}:{version}"

    def spec(self) -> TalosCluster:
        first = next(iter(self.rack.machines.values()))
        return TalosCluster(
            name="bench",
            endpoint=f"https://{first.address}:6443",
            kubernetes_version="v1.36.3",
            secrets=self.bundle,
            cni=Flannel(),
        )

    def control_plane(self, name: str, *, settings: MachineSettings | None = None, image: str = "") -> bytes:
        install = Install(disk="/dev/nvme0n1", image=image or self.image)
        base = self.spec().control_plane(install, settings)
        return MachineConfig(documents=(base, HostnameConfig(hostname=name, auto="off"))).render().encode()

    def worker(self, name: str, *, settings: MachineSettings | None = None, image: str = "") -> bytes:
        install = Install(disk="/dev/nvme0n1", image=image or self.image)
        base = self.spec().worker(install, settings)
        return MachineConfig(documents=(base, HostnameConfig(hostname=name, auto="off"))).render().encode()

    def hgx(self, name: str, profile: HGXProfile | None = None, *, version: str = VERSION) -> bytes:
        chosen = profile or HGXProfile()
        image = self.installer(Schematic(extensions=chosen.extensions), version)
        return self.worker(name, settings=chosen.settings(), image=image)

    def login(self, role: Role = "os:admin", bundle: secrets.SecretsBundle | None = None) -> MutualTls:
        authority = (bundle or self.bundle).talos
        pair = pki.client_certificate(
            authority,
            organizations=[role],
            now=secrets.utc_now(),
            lifetime=timedelta(hours=1),
            entropy=secrets.system_entropy(),
        )
        return MutualTls(authority.certificate.encode(), pair.certificate.encode(), pair.key.encode())

    def client(self, name: str, trust: Trust | None = None, *, forward_to: str | None = None) -> MachineClient:
        machine = self.rack.machines[name]
        return connect(
            machine.address, trust or self.login(), node=name, forward_to=forward_to, port=machine.spec.port, attempts=1
        )

    def maintenance(self, name: str) -> MachineClient:
        return self.client(name, FirstContact())

    def give(self, name: str, config: bytes, mode: ApplyMode = ApplyMode.AUTO) -> Applied:
        """Configure a machine that is in maintenance mode."""
        with self.maintenance(name) as client:
            return client.apply_configuration(config, mode=mode)

    def bring_up(self) -> None:
        """m1 as the control plane `cp`, m2 as the HGX worker `gpu`, and etcd bootstrapped."""
        self.give("m1", self.control_plane("cp"))
        self.give("m2", self.hgx("gpu"))
        eventually(lambda: self.rack.machines["m1"].cri_up, what="m1's container runtime")
        with self.client("m1") as client:
            client.bootstrap()
        machines = self.rack.machines.values()
        eventually(lambda: all(machine.node_is_ready for machine in machines), what="both nodes")

    def wait_stage(self, name: str, stage: str) -> None:
        machine = self.rack.machines[name]
        eventually(lambda: machine.stage == stage, what=f"{name} to be {stage}")


def new_bench(
    folder: Path,
    *hardware: Hardware,
    checker: Checker | None = None,
    cluster: ClusterHooks | None = None,
    speed: Speed = QUICK,
    addresses: list[str] | None = None,
    secure_boot: bool = False,
) -> Bench:
    """A rack of machines m1, m2, ..., not started."""
    chosen = addresses or loopback(len(hardware))
    machines = tuple(
        MachineSpec(
            name=f"m{place + 1}",
            address=chosen[place],
            pod_cidr=f"10.244.{place}.0/24",
            hardware=kind,
            secure_boot=secure_boot,
        )
        for place, kind in enumerate(hardware)
    )
    recorded = RecordedCluster()
    spec = RackSpec(machines=machines, speed=speed)
    rack = Rack(spec, folder, checker=checker or PlainChecker(), cluster=cluster or recorded)
    return Bench(rack, recorded, secrets.generate(entropy(7), secrets.utc_now))


def eventually(condition: Callable[[], bool], what: str = "it", within_s: float = 180.0) -> None:
    """Wait until the condition holds; fails when it does not in a time that only a hung machine needs."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {within_s} s for {what}"
        time.sleep(0.02)
