"""A rack of emulated machines in this process, with an image factory."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

from lab.machines.checker import Checker
from lab.machines.cluster_hooks import ClusterHooks
from lab.machines.config_view import Config
from lab.machines.front import FrontLoop
from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from lab.machines.images import Puller
from lab.machines.machine import Machine
from lab.machines.service import MachineServer
from lab.machines.spec import RackSpec


class Rack:
    """Switch on with `start`; machines that were on when the emulator ended go on, new ones are switched on."""

    def __init__(
        self,
        spec: RackSpec,
        folder: Path,
        *,
        checker: Checker,
        cluster: ClusterHooks,
        networks: Sequence[IPv4Network] = (),
    ) -> None:
        """`networks` are where registries may be, in addition to loopback. LabError if the factory cannot listen."""
        self.spec, self.folder = spec, folder
        self.checker, self.cluster, self.speed = checker, cluster, spec.speed
        folder.mkdir(parents=True, exist_ok=True)
        hosts = dict(spec.registries)
        self.factory: ImageFactoryServer | None = None
        if spec.factory is not None:
            content = FactoryContent(
                versions=tuple(spec.factory.versions), tags=dict(spec.factory.tags), folder=folder / "schematics"
            )
            self.factory = ImageFactoryServer(content, spec.factory.host, spec.factory.port)
            # A site's configs may name the factory as the world knows it.
            hosts.setdefault("factory.talos.dev", self.factory.url)
        self.puller = Puller(networks=tuple(networks), hosts=hosts)
        self._loop = FrontLoop()
        self._stopped = False
        self.machines = {
            machine.name: Machine(machine, folder / machine.name, self, self._loop) for machine in spec.machines
        }
        self._servers = [MachineServer(machine) for machine in self.machines.values()]

    def __enter__(self) -> Rack:
        """Itself, started; leaving stops it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Switch machines on."""
        for machine in self.machines.values():
            machine.resume()

    def stop(self) -> None:
        """End everything here, once; the machines' disks stay as they are."""
        if self._stopped:
            return
        self._stopped = True
        for machine in self.machines.values():
            machine.stop()
        for server in self._servers:
            server.stop()
        self._loop.close()
        if self.factory is not None:
            self.factory.close()

    def machine_at(self, address: str) -> Machine | None:
        """As Site.machine_at."""
        return next(
            (machine for machine in self.machines.values() if address in map(str, machine.spec.all_addresses)), None
        )

    def trustd(self, config: Config) -> Machine | None:
        """As Site.trustd."""
        for machine in self.machines.values():
            theirs = machine.config
            if (
                theirs is not None
                and machine.forwards_calls
                and machine.stage != "installing"
                and theirs.machine_ca.certificate == config.machine_ca.certificate
                and theirs.machine("token") == config.machine("token")
            ):
                return machine
        return None

    def etcd_members(self, cluster_id: str) -> list[Machine]:
        """As Site.etcd_members."""
        members = []
        for machine in self.machines.values():
            config = machine.config
            if config is None and (stored := machine.store.config) is not None:
                config = Config(stored)
            disks = machine.store.disks
            is_member = disks.etcd is not None and not disks.etcd_removed
            if is_member and config is not None and config.cluster_id == cluster_id:
                members.append(machine)
        return members

    def has_quorum(self, cluster_id: str) -> bool:
        """As Site.has_quorum."""
        members = self.etcd_members(cluster_id)
        return 2 * sum(member.etcd_up for member in members) > len(members)
