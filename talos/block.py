"""Volume documents: the system's own volumes, volumes for data, and their encryption.

Sizes are Talos's own texts: `100GiB`, `3TB`, and for `max_size` also `80%` or, to leave space free, `-50GiB`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from talos.document import Document, Part, Wire, wired


@dataclass(frozen=True, kw_only=True)
class Provisioning(Part):
    """Where a volume is made and how large; `disk_selector` is CEL over `disk` and `system_disk`."""

    disk_selector: str | None = field(
        default=None, metadata=wired("diskSelector", lambda expression: {"match": expression})
    )
    grow: bool | None = None
    min_size: str | None = None
    max_size: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Key(Part):
    """`lock_to_state` binds the key to the STATE volume too, so that a removed disk alone cannot be opened."""

    slot: int
    lock_to_state: bool | None = None


@dataclass(frozen=True, kw_only=True)
class NodeIDKey(_Key):
    """A key derived from the node's identity: keeps a discarded disk unreadable, not a stolen machine."""

    def wire(self) -> Wire:
        return {**super().wire(), "nodeID": {}}


@dataclass(frozen=True, kw_only=True)
class StaticKey(_Key):
    """A passphrase that the machine config itself carries."""

    passphrase: str = field(repr=False, metadata=wired("static", lambda text: {"passphrase": text}))


@dataclass(frozen=True, kw_only=True)
class KMSKey(_Key):
    """A key sealed by a KMS server, `https://host:port`."""

    endpoint: str = field(metadata=wired("kms", lambda endpoint: {"endpoint": endpoint}))


@dataclass(frozen=True, kw_only=True)
class TPMKey(_Key):
    """A key sealed by the TPM; `pcrs` None leaves the choice of registers to Talos."""

    pcrs: tuple[int, ...] | None = None
    check_secure_boot_on_enroll: bool | None = None

    def wire(self) -> Wire:
        tpm: Wire = {}
        if self.pcrs is not None:
            tpm["options"] = {"pcrs": list(self.pcrs)}
        if self.check_secure_boot_on_enroll is not None:
            tpm["checkSecurebootStatusOnEnroll"] = self.check_secure_boot_on_enroll
        common = _Key(slot=self.slot, lock_to_state=self.lock_to_state)
        return {**common.wire(), "tpm": tpm}


EncryptionKey = NodeIDKey | StaticKey | KMSKey | TPMKey


@dataclass(frozen=True, kw_only=True)
class Encryption(Part):
    """LUKS2 with one to several keys, each in a slot of its own; `key_size` is in bits, `block_size` in bytes."""

    provider: Literal["luks2"] = "luks2"
    keys: tuple[EncryptionKey, ...]
    cipher: str | None = None
    key_size: int | None = None
    block_size: int | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VolumeConfig(Document):
    """A volume of the system itself; STATE takes encryption alone, its place and size are Talos's."""

    kind: ClassVar[str] = "VolumeConfig"

    name: Literal["STATE", "EPHEMERAL", "IMAGECACHE"]
    provisioning: Provisioning | None = None
    encryption: Encryption | None = None
    mount_secure: bool | None = field(default=None, metadata=wired("mount", lambda secure: {"secure": secure}))


@dataclass(frozen=True, kw_only=True)
class Filesystem(Part):
    type: Literal["ext4", "xfs"] = "xfs"
    project_quota_support: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Mount(Part):
    disable_access_time: bool | None = None
    secure: bool | None = None


@dataclass(frozen=True, kw_only=True)
class UserVolumeConfig(Document):
    """A volume of the site's own, mounted at `/var/mnt/<name>`, which the kubelet and its pods see too."""

    kind: ClassVar[str] = "UserVolumeConfig"

    name: str
    volume_type: Literal["partition", "disk", "directory"] | None = None
    provisioning: Provisioning | None = None
    filesystem: Filesystem | None = None
    encryption: Encryption | None = None
    mount: Mount | None = None

    @property
    def mount_path(self) -> str:
        return f"/var/mnt/{self.name}"


@dataclass(frozen=True, kw_only=True)
class RawVolumeConfig(Document):
    """A partition without a filesystem, for engines that want the block device itself."""

    kind: ClassVar[str] = "RawVolumeConfig"

    name: str
    provisioning: Provisioning
    encryption: Encryption | None = None

    @property
    def device(self) -> str:
        return f"/dev/disk/by-partlabel/r-{self.name}"


@dataclass(frozen=True, kw_only=True)
class ExistingVolumeConfig(Document):
    """A filesystem that is already on a disk, found by CEL over `volume`, mounted at `/var/mnt/<name>`."""

    kind: ClassVar[str] = "ExistingVolumeConfig"

    name: str
    volume_selector: str = field(
        metadata=wired("discovery", lambda expression: {"volumeSelector": {"match": expression}})
    )
    read_only: bool | None = field(default=None, metadata=wired("mount", lambda only: {"readOnly": only}))
