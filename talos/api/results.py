"""What the machine API's calls return, and the choices that they accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class ApplyMode(IntEnum):
    """How a config takes effect. There is no default: on the wire, no mode means a reboot."""

    REBOOT = 0
    AUTO = 1
    NO_REBOOT = 2
    STAGED = 3
    TRY = 4


class RebootMode(IntEnum):
    """How a machine restarts: orderly (maybe by kexec), through the firmware, or without waiting for anything."""

    DEFAULT = 0
    POWERCYCLE = 1
    FORCE = 2


class WipeMode(IntEnum):
    """What a reset erases."""

    ALL = 0
    SYSTEM_DISK = 1
    USER_DISKS = 2


@dataclass(frozen=True)
class NodeVersion:
    """What runs on the machine; `mode` is metal, cloud or container."""

    tag: str
    sha: str
    arch: str
    platform: str
    mode: str


@dataclass(frozen=True)
class Applied:
    """What applying a config did, or would do in a dry run; `details` is redacted."""

    mode: ApplyMode
    changed: bool
    details: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Service:
    """One of Talos's services; `healthy` is None where it has no health check."""

    id: str
    state: str
    healthy: bool | None
    message: str = ""


@dataclass(frozen=True)
class EtcdMember:
    """One member of etcd."""

    id: int
    hostname: str
    peer_urls: tuple[str, ...]
    is_learner: bool


# Talos v1.13.9 pkg/machinery/resources/runtime/machinestage.go, in the order of its numbers.
STAGES = (
    "unknown",
    "booting",
    "installing",
    "maintenance",
    "running",
    "rebooting",
    "shutting down",
    "resetting",
    "upgrading",
)


@dataclass(frozen=True)
class MachineStatus:
    """The stage the machine is in, and what keeps it from being ready there."""

    stage: str
    ready: bool
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExtensionStatus:
    """One extension that is part of the running image."""

    name: str
    version: str


@dataclass(frozen=True)
class BootState:
    """How the machine came from its firmware to what runs."""

    secure_boot: bool
    """The firmware starts signed images only."""
    is_uki: bool
    """It started one file with kernel and command line; by GRUB it started others."""
    is_signed: bool
    """That file carries the key for which a TPM seals disks, as those of Secure Boot do."""


# Talos v1.13.9 pkg/machinery/resources/block/volumephase.go, in the order of its numbers.
VOLUME_PHASES = ("waiting", "failed", "missing", "located", "provisioned", "prepared", "ready", "closed")


@dataclass(frozen=True)
class MachineVolume:
    """A volume of the machine: STATE, EPHEMERAL, `u-NAME` of a UserVolumeConfig, `r-NAME` of a RawVolumeConfig."""

    id: str
    phase: str
    error: str = ""
    encrypted: bool = False


@dataclass(frozen=True)
class MachineDisk:
    """A disk of the machine, by its name for `talosctl`, and what selectors compare."""

    name: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class ClientConfig:
    """A freshly issued client certificate and a talosconfig around it."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    talosconfig: str = field(repr=False)
