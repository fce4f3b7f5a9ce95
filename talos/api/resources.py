"""Resources of a machine that are read as lists: their type, their message, and what is taken of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from talos.api.messages import decode
from talos.api.results import VOLUME_PHASES, BootState, ExtensionStatus, MachineDisk, MachineVolume

_T = TypeVar("_T")
_SELECTED = ("model", "serial", "wwid", "bus_path", "dev_path")


@dataclass(frozen=True)
class ResourceType(Generic[_T]):
    """One type; `read` takes an id and its content."""

    kind: str
    message: str
    read: Callable[[str, Any], _T]

    def of(self, resource: Any) -> _T:
        """What is taken of one resource, a `cosi.resource.Resource`."""
        return self.read(resource.metadata.id, decode(self.message, resource.spec.proto_spec))


EXTENSIONS = ResourceType(
    "ExtensionStatuses.runtime.talos.dev",
    "runtime.ExtensionStatusSpec",
    lambda _, spec: ExtensionStatus(spec.metadata.name, spec.metadata.version),
)
BOOT_STATE = ResourceType(
    "SecurityStates.talos.dev",
    "runtime.SecurityStateSpec",
    lambda _, spec: BootState(spec.secure_boot, spec.booted_with_uki, bool(spec.pcr_signing_key_fingerprint)),
)
VOLUMES = ResourceType(
    "VolumeStatuses.block.talos.dev",
    "block.VolumeStatusSpec",
    lambda name, spec: MachineVolume(
        name, VOLUME_PHASES[spec.phase], spec.error_message, bool(spec.encryption_provider)
    ),
)
DISKS = ResourceType(
    "Disks.block.talos.dev",
    "block.DiskSpec",
    lambda name, spec: MachineDisk(name, {field: getattr(spec, field) for field in _SELECTED}),
)
KERNEL_PARAMETERS = ResourceType(
    "KernelParamStatuses.runtime.talos.dev",
    "runtime.KernelParamStatusSpec",
    lambda name, spec: "" if spec.unsupported else name,
)
