"""What a rack is made of, from its description: addresses, hardware, what machines boot from, and its speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml

from lab.errors import LabError
from lab.machines.image_factory import VERSIONS

Hardware = Literal["infra", "hgx-h200"]
ClusterKind = Literal["recorded", "kwok"]

T = TypeVar("T")

API_PORT = 50000
EMPTY_SCHEMATIC = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"


@dataclass(frozen=True)
class Disk:
    """A disk of a machine; `size` in bytes."""

    device: str
    size: int
    model: str
    serial: str
    transport: str = "nvme"


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """One machine. `pod_cidr` is its pods' network, which the controller manager would choose on a real site."""

    name: str
    address: str
    pod_cidr: str
    hardware: Hardware = "infra"
    port: int = API_PORT
    boot_version: str = VERSIONS[-1]
    """Talos version of the ISO or PXE image that it boots from until it is installed."""
    boot_schematic: str = EMPTY_SCHEMATIC
    further_addresses: tuple[str, ...] = ()
    secure_boot: bool = False
    """Its firmware starts signed systems only, and has their keys; the medium that it boots from is signed then."""

    def __post_init__(self) -> None:
        """LabError for what is no address, network or hardware."""
        try:
            IPv4Network(self.pod_cidr)
            tuple(map(IPv4Address, (self.address, *self.further_addresses)))
        except ValueError as error:
            raise LabError(
                f"machine {self.name}: {error}", fix="write IPv4 addresses, and networks as a.b.c.d/n"
            ) from None
        if self.hardware not in get_args(Hardware):
            raise LabError(
                f"machine {self.name}: hardware is {self.hardware!r}", fix=f"allowed: {', '.join(get_args(Hardware))}"
            )

    @property
    def all_addresses(self) -> tuple[IPv4Address, ...]:
        return tuple(map(IPv4Address, (self.address, *self.further_addresses)))

    @property
    def disks(self) -> tuple[Disk, ...]:
        """A boot disk, and on HGX four data disks."""
        boot = Disk("/dev/nvme0n1", 960 * 10**9, "EMULATED BOOT", f"{self.name}-BOOT")
        data = (
            Disk(f"/dev/nvme{slot}n1", 3840 * 10**9, "EMULATED DATA", f"{self.name}-DATA{slot}") for slot in range(1, 5)
        )
        return (boot, *data) if self.hardware == "hgx-h200" else (boot,)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How long things take, in seconds."""

    boot_s: float = 1.0
    install_s: float = 1.0
    services_s: float = 0.3
    going_down_s: float = 0.2
    retry_s: float = 0.3
    """Until it looks again for what it waits for: etcd's other members, the cluster, a control plane that signs."""
    notices_s: float = 5.0
    """Until it sees what others changed of its Node object, which Talos itself watches."""


@dataclass(frozen=True, kw_only=True)
class FactorySpec:
    """Where the emulated image factory is, and what it has; see FactoryContent."""

    host: str = "127.0.0.1"
    port: int = 0
    versions: tuple[str, ...] = VERSIONS
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RackSpec:
    """A rack. `registries` are names of registries and the URLs where they really are, such as the factory's own."""

    machines: tuple[MachineSpec, ...]
    cluster: ClusterKind = "recorded"
    factory: FactorySpec | None = FactorySpec()
    registries: Mapping[str, str] = field(default_factory=dict)
    speed: Speed = Speed()

    def __post_init__(self) -> None:
        """LabError for machines that share a name, an address or a pod network."""
        for what in ("name", "address", "pod_cidr"):
            values = [
                f"{machine.address}:{machine.port}" if what == "address" else getattr(machine, what)
                for machine in self.machines
            ]
            if twice := {value for value in values if values.count(value) > 1}:
                raise LabError(f"rack: {what} {min(twice)} is there twice", fix="give each machine its own")
        if self.cluster not in get_args(ClusterKind):
            raise LabError(f"rack: cluster is {self.cluster!r}", fix=f"allowed: {', '.join(get_args(ClusterKind))}")


def load_rack(file: Path) -> RackSpec:
    """A rack of its YAML or JSON description; LabError for a file that is none."""
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"{file}: {error}", fix="give a readable YAML or JSON file") from None
    if not isinstance(content, Mapping):
        raise LabError(f"{file} is no mapping", fix="see `python -m lab.machines --help` for an example")
    fields = dict(content)
    for name, kind in (("factory", FactorySpec), ("speed", Speed)):
        if fields.get(name) is not None:
            fields[name] = _filled(kind, fields[name], f"{file}: {name}")
    machines = fields.get("machines") or ()
    fields["machines"] = tuple(_filled(MachineSpec, machine, f"{file}: machine") for machine in machines)
    return _filled(RackSpec, fields, str(file))


def _filled(kind: type[T], fields: Any, where: str) -> T:
    known = {member.name: member for member in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = dict(fields) if isinstance(fields, Mapping) else {}
    needed = {name for name, member in known.items() if member.default is MISSING and member.default_factory is MISSING}
    if wrong := (set(given) - set(known)) | (needed - set(given)):
        raise LabError(
            f"{where}: unknown or missing key {', '.join(sorted(wrong))}", fix=f"keys: {', '.join(sorted(known))}"
        )
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
