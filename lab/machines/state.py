"""What an emulated machine has on its disks: it survives reboots, and the death of the emulator.

Kept as `state.json` and `config.yaml` in the machine's folder, each replaced in one step. The config holds secrets, so
both are readable by their owner alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class System:
    """A Talos system as an image holds it. `extensions` are official names to versions; `schematic` is their id."""

    talos_version: str
    schematic: str = ""
    extensions: dict[str, str] = field(default_factory=dict)
    image: str = ""
    signed: bool = False
    """As those of Secure Boot are: with the key for which a TPM seals disks."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image in the machine's store: its digest, and the system that its installer would write."""

    digest: str
    system: System


@dataclass(kw_only=True)
class Disks:
    """Everything that outlives a loss of power.

    `etcd` is this machine's member id, None without a data directory. `etcd_removed` means that the others have taken
    that member out: etcd does not start from its data again, until it is wiped.
    """

    powered: bool = True
    boot_id: str = ""
    installed: System | None = None
    next_boot: System | None = None
    etcd: int | None = None
    etcd_removed: bool = False
    images: dict[str, Image] = field(default_factory=dict)
    cordoned: bool = False
    volumes: dict[str, str] = field(default_factory=dict)
    """What the disks of volumes hold, by the volumes' ids: plain or luks."""
    boots: list[str] = field(default_factory=list)
    """How it came to each boot so far: power, firmware or kexec."""


class Store:
    """The machine's folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder; a state that was cut off in the middle of its first writing counts as none."""
        self.folder = folder
        # A machine that goes down and the rack, or two calls, may write at once.
        self._writing = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.disks = self._read()

    @property
    def console(self) -> Path:
        """What the machine prints on its screen."""
        return self.folder / "console.log"

    @property
    def faults(self) -> Path:
        return self.folder / "faults.json"

    @property
    def config(self) -> bytes | None:
        """The persisted machine config."""
        try:
            return (self.folder / "config.yaml").read_bytes()
        except FileNotFoundError:
            return None

    @property
    def recovery(self) -> bytes | None:
        """The snapshot that etcd is to be recovered from."""
        try:
            return (self.folder / "etcd-recovery.db").read_bytes()
        except FileNotFoundError:
            return None

    def save_recovery(self, snapshot: bytes | None) -> None:
        """Keep a snapshot to recover from, or drop it."""
        self._keep("etcd-recovery.db", snapshot)

    def save(self) -> None:
        """Write the state as it is now."""
        with self._writing:
            self._replace("state.json", json.dumps(dataclasses.asdict(self.disks), indent=2).encode())

    def save_config(self, config: bytes | None) -> None:
        """Persist a config, or wipe it."""
        self._keep("config.yaml", config)

    def _read(self) -> Disks:
        try:
            content = json.loads((self.folder / "state.json").read_text())
        except FileNotFoundError:
            return Disks()
        images = {
            name: Image(digest=image["digest"], system=_system(image["system"]))
            for name, image in content["images"].items()
        }
        installed, next_boot = (content[name] and _system(content[name]) for name in ("installed", "next_boot"))
        return Disks(**{**content, "images": images, "installed": installed, "next_boot": next_boot})

    def _keep(self, name: str, content: bytes | None) -> None:
        with self._writing:
            if content is None:
                (self.folder / name).unlink(missing_ok=True)
            else:
                self._replace(name, content)

    def _replace(self, name: str, content: bytes) -> None:
        draft = self.folder / f".{name}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        draft.replace(self.folder / name)


def _system(fields: dict[str, Any]) -> System:
    return System(**fields)
