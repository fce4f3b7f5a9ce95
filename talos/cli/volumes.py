"""Volumes and kernel settings of a machine that Talos could not make of its config, in words for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from talos.api.client import MachineClient
from talos.api.results import MachineDisk, MachineVolume

_KINDS = {"VolumeConfig": "", "UserVolumeConfig": "u-", "RawVolumeConfig": "r-"}
_SYSTEM = ("STATE", "EPHEMERAL")
# What Talos's controller answers for a disk that holds something (block/internal/volumes/locate.go, selectBestDisk).
_NOT_BLANK = re.compile(r"[1-9]\d* have (?:wrong format|not enough space)")
_EQUALS = re.compile(r"""disk\.(\w+) == (?:"([^"]*)"|'([^']*)')""")


def volume_problems(client: MachineClient, config: bytes = b"") -> list[str]:
    """One phrase for each volume of the machine that is not ready, and of the config's that does not exist."""
    volumes = {volume.id: volume for volume in client.volumes()}
    wanted = _configured(config)
    failed = [volume for volume in volumes.values() if _is_of_a_config(volume.id) and volume.phase != "ready"]
    disks = client.disks() if failed else ()
    missing = [name for name in wanted if name not in volumes and name.startswith(("u-", "r-"))]
    return [
        *(f"volume {name} does not exist yet" for name in missing if volumes),
        *(_in_words(volume, wanted.get(volume.id, {}), disks) for volume in failed),
    ]


def setting_problems(client: MachineClient, config: bytes) -> list[str]:
    """One phrase for each kernel setting of the config that Talos could not write."""
    wanted = {str(key) for document in _documents(config) for key in _machine(document).get("sysctls") or {}}
    written = client.kernel_parameters() if wanted else frozenset()
    return [
        f"its kernel did not take the setting {key}: take it out if Talos's kernel does not have it"
        for key in sorted(wanted)
        if written and f"proc.sys.{key}" not in written
    ]


def encryption_refusal(volumes: Iterable[MachineVolume], config: bytes) -> tuple[str, str] | None:
    """Why a config does not fit volumes that exist, and the fix: Talos neither encrypts nor decrypts what is there.

    It looks at the disk and fails with `block dev type mismatch` (block/internal/volumes/encrypt.go), after the boot.
    """
    wanted = _configured(config)
    for volume in volumes:
        if volume.phase != "ready" or not _is_of_a_config(volume.id):
            continue
        asked = bool((wanted.get(volume.id) or {}).get("encryption"))
        if volume.encrypted is not asked and (volume.id in wanted or volume.id in _SYSTEM):
            is_so, would_be = ("encrypted", "plain") if volume.encrypted else ("plain", "encrypted")
            return (
                f"its volume {volume.id} is {is_so} and the config has it {would_be}, which Talos changes on no volume "
                "that exists: the machine would not come back",
                "take the change of `encryption` back, or replace the machine: python -m sitectl docs replace-node",
            )
    return None


def _in_words(volume: MachineVolume, wanted: Mapping[str, Any], disks: Iterable[MachineDisk]) -> str:
    stated = f"volume {volume.id} is {volume.phase}" + (f": {volume.error}" if volume.error else "")
    selector = str(((wanted.get("provisioning") or {}).get("diskSelector") or {}).get("match", ""))
    if not _NOT_BLANK.search(volume.error):
        return stated
    named = ", ".join(_matching(selector, disks)) or f"that of {selector or 'its selector'}"
    wipe = named if named.isalnum() else "NAME"
    return f"{stated}; its disk {named} is not blank: if nothing on it is needed, `talosctl wipe disk {wipe}`"


def _matching(selector: str, disks: Iterable[MachineDisk]) -> Iterator[str]:
    """Names of disks that match, of a selector that compares texts and nothing else."""
    compared = _EQUALS.findall(selector)
    if compared and not _EQUALS.sub("", selector).replace("&&", "").strip(" ()"):
        for disk in disks:
            if all(disk.fields.get(field) == (single or other) for field, single, other in compared):
                yield disk.name


def _configured(config: bytes) -> dict[str, Mapping[str, Any]]:
    """Documents of volumes on disks, by the volumes' ids."""
    documents = _documents(config)
    return {
        f"{_KINDS[document['kind']]}{document.get('name')}": document
        for document in documents
        if document.get("kind") in _KINDS and document.get("volumeType") != "directory"
    }


def _documents(config: bytes) -> list[Mapping[str, Any]]:
    return [document for document in yaml.safe_load_all(config) if isinstance(document, Mapping)]


def _machine(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document.get("machine") or {} if "kind" not in document else {}


def _is_of_a_config(name: str) -> bool:
    return name in _SYSTEM or name.startswith(("u-", "r-"))
