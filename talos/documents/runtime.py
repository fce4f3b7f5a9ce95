"""Documents on how the machine runs: watchdog, kernel log, events, memory pressure, environment, drivers, services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from talos.documents import checks
from talos.documents.document import Document, Part, checked, seconds, wired


@dataclass(frozen=True, kw_only=True)
class WatchdogTimerConfig(Document):
    """A hardware watchdog that resets a machine whose Talos hangs; `timeout_s` is at least 10."""

    kind: ClassVar[str] = "WatchdogTimerConfig"

    device: str = field(default="/dev/watchdog0", metadata=checked(checks.absolute_path))
    timeout_s: float | None = field(
        default=None, metadata=wired("timeout", seconds, checks.between(10, unit="seconds"))
    )


@dataclass(frozen=True, kw_only=True)
class KmsgLogConfig(Document):
    """Where the kernel's log goes: `tcp://host:port` or `udp://host:port`."""

    kind: ClassVar[str] = "KmsgLogConfig"

    name: str
    url: str = field(metadata=checked(checks.url("tcp", "udp", port=True, path=False)))


@dataclass(frozen=True, kw_only=True)
class EventSinkConfig(Document):
    """Where Talos's own events go, `host:port`."""

    kind: ClassVar[str] = "EventSinkConfig"

    endpoint: str = field(metadata=checked(checks.host_and_port))


@dataclass(frozen=True, kw_only=True)
class OOMConfig(Document):
    """When Talos's memory-pressure handler acts and which cgroup it takes, in CEL."""

    kind: ClassVar[str] = "OOMConfig"

    trigger_expression: str | None = None
    cgroup_ranking_expression: str | None = None
    strict_cgroup_class_ordering: bool | None = None
    sample_interval_s: float | None = field(
        default=None, metadata=wired("sampleInterval", seconds, checks.between(0.001, unit="seconds"))
    )


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(Document):
    """Environment variables of Talos's services, for instance a proxy. A proxy's password is a secret."""

    kind: ClassVar[str] = "EnvironmentConfig"

    variables: Mapping[str, str] = field(repr=False, metadata=checked(checks.variables))


@dataclass(frozen=True, kw_only=True)
class PCIDriverRebindConfig(Document):
    """A PCI device, `0000:17:00.0`, taken from its driver and given to another, such as `vfio-pci`."""

    kind: ClassVar[str] = "PCIDriverRebindConfig"

    address: str = field(metadata=wired("name", check=checks.pci_address))
    target_driver: str


@dataclass(frozen=True, kw_only=True)
class ConfigFile(Part):
    """A file of an extension service. Its content may be a secret."""

    content: str = field(repr=False)
    mount_path: str = field(metadata=checked(checks.absolute_path))


@dataclass(frozen=True, kw_only=True)
class ExtensionServiceConfig(Document):
    """Files and environment (`NAME=value`) of the service that a system extension brings."""

    kind: ClassVar[str] = "ExtensionServiceConfig"

    name: str
    config_files: tuple[ConfigFile, ...] = ()
    environment: tuple[str, ...] = field(default=(), repr=False, metadata=checked(checks.assignments))
