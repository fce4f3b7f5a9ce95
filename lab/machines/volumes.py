"""Emulated volumes: which of a config's Talos would make, seal and open on this machine, and why not. No I/O.

Read from siderolabs/talos v1.13.9, internal/app/machined/pkg/controllers/block/internal/volumes/ (locate, disk and
encrypt.go) and internal/pkg/secureboot/tpm2/ (seal, unseal and keys.go). No disk is described by a rack: each selector
finds one of its own, blank unless a fault states otherwise, and large enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.machines.config_view import Config
from lab.machines.spec import MachineSpec
from talos.api.results import VOLUME_PHASES

STATE, EPHEMERAL = "STATE", "EPHEMERAL"
PLAIN, LUKS = "plain", "luks"
_SYSTEM = (STATE, EPHEMERAL)
_PREFIXES = {"UserVolumeConfig": "u-", "RawVolumeConfig": "r-"}
_NO_KEY = "failed to read pcr signing public key: open /.extra/tpm2-pcr-public-key.pem: no such file or directory"
_SEAL = f"failed to calculate sealing policy digest: failed to calculate policy authorize: {_NO_KEY}"
_NOT_BLANK = "0 have not enough space, 1 have wrong format, 0 have other issues"
_WRONG_FORMAT = f"no disks matched for volume (1 matched selector): {_NOT_BLANK}"
_EQUALS = re.compile(r"""disk\.(\w+)\s*==\s*["']([^"']*)["']""")


@dataclass(frozen=True)
class VolumeState:
    """One volume as VolumeStatuses.block.talos.dev shows it; `content` is what its disk holds then."""

    id: str
    phase: str
    error: str = ""
    content: str = ""

    def fields(self) -> dict[str, Any]:
        """Of its message."""
        return {
            "phase": VOLUME_PHASES.index(self.phase),
            "error_message": self.error,
            "encryption_provider": int(self.content == LUKS and self.phase == "ready"),
        }


def volumes(config: Config, there: Mapping[str, str], *, signed: bool, used: frozenset[str]) -> Iterator[VolumeState]:
    """Each volume of the config, in the order in which Talos makes them.

    there: what disks hold already, by volume. signed: what runs has a signed PCR policy. used: names of user volumes
    whose disks hold something of others.
    """
    ready = True
    for name, document in _wanted(config).items():
        encrypted = bool(document.get("encryption"))
        content = LUKS if encrypted else PLAIN
        error = ""
        if name in there and there[name] != content:
            error = "block dev type mismatch: xfs != luks" if encrypted else "filesystem type mismatch: luks != xfs"
        elif encrypted and not _opens(document, signed=signed):
            error = _unsealed(document, made=name in there)
        elif name not in there and name.partition("-")[2] in used:
            error = _WRONG_FORMAT
        if name not in there and not ready and name not in _SYSTEM:
            yield VolumeState(name, "waiting")
        else:
            yield VolumeState(name, "failed" if error else "ready", error, there.get(name, "" if error else content))
        ready = ready and not (error and name in _SYSTEM)


def disks(config: Config | None, spec: MachineSpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and fields of each disk; those of volumes have what their selectors compare."""
    selectors = [str((_provisioning(document)).get("match", "")) for document in _of_disks(config)] if config else []
    for place, disk in enumerate(spec.disks):
        fields: dict[str, Any] = {
            "size": disk.size,
            "model": disk.model,
            "serial": disk.serial,
            "dev_path": disk.device,
        }
        if 0 < place <= len(selectors):
            known = {"model", "serial", "wwid", "bus_path"}
            fields |= {key: value for key, value in _EQUALS.findall(selectors[place - 1]) if key in known}
        yield disk.device.removeprefix("/dev/"), fields


def mounts(config: Config, states: Mapping[str, VolumeState]) -> tuple[str, ...]:
    """Folders below /var/mnt that exist: of volumes that are ready, and, on EPHEMERAL, of the kubelet's extra mounts.

    The kubelet's service makes the latter whether or not a volume is mounted there (system/services/kubelet.go).
    """
    ready = [f"/var/mnt/{name[2:]}" for name, state in states.items() if name[:2] == "u-" and state.phase == "ready"]
    folders = [f"/var/mnt/{volume['name']}" for volume in config.of_kind("UserVolumeConfig") if _is_folder(volume)]
    extra = [str(mount["source"]) for mount in config.machine("kubelet.extraMounts", ())]
    return tuple(dict.fromkeys([*ready, *folders, *(path for path in extra if path.startswith("/var/mnt/"))]))


def _wanted(config: Config) -> dict[str, Mapping[str, Any]]:
    system = {document["name"]: document for document in config.of_kind("VolumeConfig")}
    own = {f"{_PREFIXES[str(document['kind'])]}{document['name']}": document for document in _of_disks(config)}
    return {**{name: system.get(name, {}) for name in _SYSTEM}, **own}


def _of_disks(config: Config) -> list[Mapping[str, Any]]:
    return [document for kind in _PREFIXES for document in config.of_kind(kind) if not _is_folder(document)]


def _is_folder(document: Mapping[str, Any]) -> bool:
    return document.get("volumeType") == "directory"


def _provisioning(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return (document.get("provisioning") or {}).get("diskSelector") or {}


def _keys(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(document["encryption"].get("keys") or ())


def _opens(document: Mapping[str, Any], *, signed: bool) -> bool:
    """Whether one of its keys works: those of a TPM need the key in the image, the others are believed to."""
    return any(signed or "tpm" not in key for key in _keys(document))


def _unsealed(document: Mapping[str, Any], *, made: bool) -> str:
    what = "opening encrypted volume" if made else "formatting and encrypting volume"
    entry = "".join(f"\n\t* {_NO_KEY if made else _SEAL}" for _ in _keys(document))
    count = len(_keys(document))
    errors = f"{count} error{'s' if count > 1 else ''} occurred:{entry}\n\n"
    return f"error {what}: no handlers available to get encryption keys from: {errors}"
