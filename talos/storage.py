"""Disks for Longhorn: user volumes that Talos makes, and what the kubelet and Longhorn must know of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from floor import storage_nodes
from talos.documents.block import Encryption, Filesystem, Provisioning, RawVolumeConfig, UserVolumeConfig
from talos.documents.document import Document
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import ExtraMount, KernelModule

LonghornEngine = Literal["v1", "v2"]

_HUGE_PAGES_2MIB = 1024
# Longhorn v1 keeps and runs its engines' programs here, whatever its disks are.
_CONTROL_PATH = "/var/lib/longhorn"


@dataclass(frozen=True, kw_only=True)
class LonghornDisk:
    """A disk for Longhorn: `selector` is CEL that matches this one disk of the node. `min_size` is a text like `3TB`.

    `reserved_bytes` are kept out of Longhorn's hands; `tags` are what a StorageClass's diskSelector names.
    """

    name: str
    selector: str
    min_size: str
    reserved_bytes: int = 0
    tags: tuple[str, ...] = ()
    encryption: Encryption | None = None


@dataclass(frozen=True, kw_only=True)
class LonghornStorage:
    """A node's disks for Longhorn's engine: v1 keeps files on XFS, v2 takes the partition itself."""

    disks: tuple[LonghornDisk, ...]
    engine: LonghornEngine = "v1"

    def __post_init__(self) -> None:
        if not self.disks:
            raise ConfigError("storage for Longhorn names no disk", fix="name one, or leave the storage out")

    @property
    def documents(self) -> tuple[Document, ...]:
        """One volume a disk, as large as the disk has room."""
        return tuple(self._volume(disk) for disk in self.disks)

    @property
    def kubelet_mounts(self) -> tuple[ExtraMount, ...]:
        """Where Longhorn v1 runs its engines, so the kubelet must see what is mounted there and pass its own on.

        Not its disks: Talos shows the kubelet what is mounted below /var/mnt, and would make a folder on the system
        disk in the place of a disk that is not mounted (system/services/kubelet.go).
        """
        return () if self.engine == "v2" else (ExtraMount(destination=_CONTROL_PATH, source=_CONTROL_PATH),)

    @property
    def node_labels(self) -> dict[str, str]:
        return {storage_nodes.LABEL: storage_nodes.VALUE}

    @property
    def node_annotations(self) -> dict[str, str]:
        """The disks, as Longhorn reads them once, when it first sees the node."""
        kind = {"v1": "filesystem", "v2": "block"}[self.engine]
        listed = [
            {
                "name": disk.name,
                "path": self.path(disk),
                "diskType": kind,
                "allowScheduling": True,
                "storageReserved": disk.reserved_bytes,
                "tags": list(disk.tags),
            }
            for disk in self.disks
        ]
        return {storage_nodes.DISKS_ANNOTATION: json.dumps(listed, separators=(",", ":"))}

    @property
    def kernel_modules(self) -> tuple[KernelModule, ...]:
        names = ("nvme_tcp", "vfio_pci", "uio_pci_generic", "ublk_drv") if self.engine == "v2" else ()
        return tuple(KernelModule(name=name) for name in names)

    @property
    def huge_pages_2mib(self) -> int:
        return _HUGE_PAGES_2MIB if self.engine == "v2" else 0

    def path(self, disk: LonghornDisk) -> str:
        """Where Longhorn finds the disk: a folder, or for v2 a block device."""
        return f"/dev/disk/by-partlabel/r-{disk.name}" if self.engine == "v2" else f"/var/mnt/{disk.name}"

    def _volume(self, disk: LonghornDisk) -> Document:
        provisioning = Provisioning(disk_selector=disk.selector, min_size=disk.min_size, grow=True)
        if self.engine == "v2":
            return RawVolumeConfig(name=disk.name, provisioning=provisioning, encryption=disk.encryption)
        return UserVolumeConfig(
            name=disk.name, provisioning=provisioning, filesystem=Filesystem(type="xfs"), encryption=disk.encryption
        )
