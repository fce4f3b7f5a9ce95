"""Volume documents: the system's own volumes, volumes for data, and their encryption.

Sizes are Talos's own texts: `100GiB`, `3TB`, and for `max_size` also `80%` or, to leave space free, `-50GiB`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from talos.documents import checks
from talos.documents.cel import condition
from talos.documents.document import Document, Part, Wire, checked, wired
from talos.documents.problems import ConfigProblem

SystemVolume = Literal["STATE", "EPHEMERAL", "IMAGECACHE"]
VolumeType = Literal["partition", "disk", "directory"]
FilesystemType = Literal["ext4", "xfs"]


@dataclass(frozen=True, kw_only=True)
class Provisioning(Part):
    """Where a volume is made and how large; `disk_selector` is CEL over `disk` and `system_disk`."""

    disk_selector: str | None = field(
        default=None, metadata=wired("diskSelector", lambda expression: {"match": expression}, condition("disk"))
    )
    grow: bool | None = None
    min_size: str | None = field(default=None, metadata=checked(checks.size))
    max_size: str | None = field(default=None, metadata=checked(checks.size_or_share))


@dataclass(frozen=True, kw_only=True)
class _Key(Part):
    """`lock_to_state` binds the key to the STATE volume too, so that a removed disk alone cannot be opened."""

    slot: int = field(metadata=checked(checks.between(0, 31)))
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
    """A key sealed by a KMS server, `https://host:port`: by grpc:// it would travel in plain text."""

    endpoint: str = field(
        metadata=wired("kms", lambda endpoint: {"endpoint": endpoint}, checks.url("https", port=True))
    )


@dataclass(frozen=True, kw_only=True)
class TPMKey(_Key):
    """A key sealed by the TPM; `pcrs` None leaves the choice of registers to Talos."""

    pcrs: tuple[int, ...] | None = field(default=None, metadata=checked(checks.every(checks.between(0, 23))))
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

    def disagreements(self) -> Iterator[ConfigProblem]:
        slots = [key.slot for key in self.keys]
        if not slots or len(set(slots)) < len(slots):
            yield ConfigProblem(
                path=("keys",),
                what="do not have a slot each" if slots else "are none",
                got=f"slots {slots}" if slots else "",
                allowed="one key or several, each in a slot of its own",
                fix="give each key a slot of its own",
            )


@dataclass(frozen=True, kw_only=True)
class VolumeConfig(Document):
    """A volume of the system itself; STATE takes encryption alone, its place and size are Talos's."""

    kind: ClassVar[str] = "VolumeConfig"

    name: SystemVolume
    provisioning: Provisioning | None = None
    encryption: Encryption | None = None
    mount_secure: bool | None = field(default=None, metadata=wired("mount", lambda secure: {"secure": secure}))

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.name != "STATE":
            return
        if self.provisioning is not None:
            yield ConfigProblem(path=("provisioning",), what="is Talos's own for STATE", fix="leave it out")
        if self.encryption is not None and any(key.lock_to_state for key in self.encryption.keys):
            yield ConfigProblem(path=("encryption",), what="locks STATE to itself", fix="leave lock_to_state out")


@dataclass(frozen=True, kw_only=True)
class Filesystem(Part):
    type: FilesystemType = "xfs"
    project_quota_support: bool | None = None

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.project_quota_support and self.type != "xfs":
            yield ConfigProblem(path=("project_quota_support",), what=f"is not there on {self.type}", fix="choose xfs")


@dataclass(frozen=True, kw_only=True)
class Mount(Part):
    disable_access_time: bool | None = None
    secure: bool | None = None


@dataclass(frozen=True, kw_only=True)
class UserVolumeConfig(Document):
    """A volume of the site's own, mounted at `/var/mnt/<name>`, which the kubelet and its pods see too."""

    kind: ClassVar[str] = "UserVolumeConfig"

    name: str = field(metadata=checked(checks.volume_name))
    volume_type: VolumeType | None = None
    provisioning: Provisioning | None = None
    filesystem: Filesystem | None = None
    encryption: Encryption | None = None
    mount: Mount | None = None

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.volume_type == "directory":
            for name in ("provisioning", "filesystem", "encryption", "mount"):
                if getattr(self, name) is not None:
                    yield ConfigProblem(path=(name,), what="does not go with a directory", fix=f"leave {name} out")
        else:
            yield from _unprovided(self.provisioning, sized=self.volume_type != "disk")


@dataclass(frozen=True, kw_only=True)
class RawVolumeConfig(Document):
    """A partition without a filesystem, for engines that want the block device itself."""

    kind: ClassVar[str] = "RawVolumeConfig"

    name: str = field(metadata=checked(checks.volume_name))
    provisioning: Provisioning
    encryption: Encryption | None = None

    def disagreements(self) -> Iterator[ConfigProblem]:
        yield from _unprovided(self.provisioning, sized=True)

    @property
    def device(self) -> str:
        return f"/dev/disk/by-partlabel/r-{self.name}"


@dataclass(frozen=True, kw_only=True)
class ExistingVolumeConfig(Document):
    """A filesystem that is already on a disk, found by CEL over `volume`, mounted at `/var/mnt/<name>`."""

    kind: ClassVar[str] = "ExistingVolumeConfig"

    name: str = field(metadata=checked(checks.volume_name))
    volume_selector: str = field(
        metadata=wired("discovery", lambda expression: {"volumeSelector": {"match": expression}}, condition("volume"))
    )
    read_only: bool | None = field(default=None, metadata=wired("mount", lambda only: {"readOnly": only}))


def _unprovided(provisioning: Provisioning | None, *, sized: bool) -> Iterator[ConfigProblem]:
    """What a volume on a disk lacks, or has too much of: a whole disk has no size to choose."""
    chosen = provisioning or Provisioning()
    sizes = chosen.min_size is not None or chosen.max_size is not None
    if chosen.disk_selector is None:
        yield ConfigProblem(
            path=("provisioning", "disk_selector"),
            what="is missing",
            allowed="a CEL condition on `disk`",
            fix="name disks",
        )
    if sized and not sizes:
        yield ConfigProblem(
            path=("provisioning", "min_size"), what="is missing, and so is max_size", fix="give one of them"
        )
    if not sized and (sizes or chosen.grow is not None):
        yield ConfigProblem(
            path=("provisioning",), what="has a size, and takes the whole disk", fix="leave sizes and grow out"
        )
