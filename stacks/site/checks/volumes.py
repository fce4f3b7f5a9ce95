"""Sizes of volumes and of the install disk, and devices that are no disk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, shown
from stacks.site.checks.disks import LEAST_BYTES, MOST_BYTES, amount, is_every_disk
from stacks.site.reading.levels import LEVELS, MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, mapping, matching

_PARTITION = re.compile(r"(/dev/(?:sd[a-z]+|hd[a-z]+|vd[a-z]+))[0-9]+|(/dev/(?:nvme[0-9]+n[0-9]+|mmcblk[0-9]+))p[0-9]+")
_PARTITION_LINK = re.compile(r"(/dev/disk/by-[a-z]+/.+)-part[0-9]+")
_NO_DISK = re.compile(r"/dev/(loop|sr|ram|zram|fd)[0-9]+|/dev/(cdrom|null|zero)")
_PODS_DISK = ("system_volumes", "EPHEMERAL")
# By estimate: vLLM's image has some 10 GB, which containerd keeps beside what it unpacks, and so two releases while
# replicas change.
_GPU_NODE_BYTES = 80e9
_SHARE = re.compile(r"(-?)([0-9]+(?:\.[0-9]+)?)%")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Disks that cannot be, and sizes that no volume can have."""
    machines = at(values, *MACHINES)
    for level in LEVELS:
        for path, device in matching(machines, f"{level}install_disk.device"):
            if isinstance(device, str):
                yield from _of_device((*MACHINES, *path), device)
        for path, size in matching(machines, f"{level}install_disk.size"):
            sign, size_bytes = amount(size)
            above = sign in (">", ">=")
            wrong = size_bytes > MOST_BYTES if above else size_bytes < LEAST_BYTES
            if isinstance(size, str) and re.search("[0-9]", size) and wrong:
                yield Problem(
                    path=(*MACHINES, *path),
                    what="is a size that no disk has"
                    if above or not size_bytes
                    else "is a smaller disk than Talos can be installed on; a number without a unit is one of bytes",
                    got=shown(size),
                    allowed="10GB or more",
                    fix="write the size of the boot disk, such as <= 2TB",
                )
    reported: set[Path] = set()
    for machine in machines_of(machines):
        disk, path = mapping(machine.keys.get("install_disk")), machine.path("install_disk")
        if disk and is_every_disk(disk) and path not in reported:
            reported.add(path)
            yield Problem(
                path=path,
                what="matches every disk, so Talos may be installed on any of them",
                got=", ".join(f"{key} {shown(text)}" for key, text in disk.items()),
                fix="write what only the boot disk has, such as its model, serial, bus_path or type, or its device",
            )
        for kind in ("system_volumes", "volumes", "raw_volumes"):
            for name, volume in sorted(mapping(machine.keys.get(kind)).items()):
                place = mapping(mapping(volume).get("provisioning"))
                yield from _of_sizes(machine, (kind, str(name), "provisioning"), place)


def _of_device(path: Path, device: str) -> Iterator[Problem]:
    partition = _PARTITION.fullmatch(device) or _PARTITION_LINK.fullmatch(device)
    if partition:
        disk = next(filter(None, partition.groups()))
        yield Problem(
            path=path,
            what="is a partition, and Talos makes its own on a whole disk",
            got=shown(device),
            fix=f"write {disk}",
        )
    elif _NO_DISK.fullmatch(device):
        yield Problem(
            path=path,
            what="is no disk that a machine starts from",
            got=shown(device),
            fix="write the path of a disk, such as /dev/nvme0n1 or /dev/disk/by-id/...",
        )


def _of_sizes(machine: SiteMachine, keys: tuple[str, ...], place: Mapping[str, Any]) -> Iterator[Problem]:
    least, most = place.get("min_size"), place.get("max_size")
    if amount(least)[1] > MOST_BYTES:
        yield Problem(
            path=machine.path(*keys, "min_size"),
            what="is more than any disk has",
            got=shown(least),
            allowed=f"up to {MOST_BYTES / 1e12:g}TB",
            fix="correct the unit, such as 3TB",
        )
        return
    room, of = (_GPU_NODE_BYTES, "two releases of an engine") if machine.role == "hgx" else (LEAST_BYTES, "pods")
    if keys[:2] == _PODS_DISK and 0 < amount(most)[1] < room:
        yield Problem(
            path=machine.path(*keys, "max_size"),
            what=f"leaves no room for images of {of} and logs of pods, which lie there",
            got=shown(most),
            allowed=f"{room / 1e9:.0f}GB or more",
            fix=f"write {max(room / 1e9, 100):.0f}GB or more, or take it out",
        )
        return
    share = _SHARE.fullmatch(most) if isinstance(most, str) else None
    path = machine.path(*keys, "max_size")
    if share is not None:
        leaves = bool(share[1])
        if not 0 < float(share[2]) <= 100 or (leaves and float(share[2]) == 100):
            yield Problem(
                path=path,
                what="is no share of a disk that a volume can have",
                got=shown(most),
                allowed="above 0% to 100%, or what to leave, such as -10%",
                fix="write a share such as 80%, or take it out",
            )
    elif 0 < amount(most)[1] < amount(least)[1]:
        yield Problem(
            path=path,
            what=f"is less than min_size, which is {least}",
            got=shown(most),
            fix=f"write {least} or more, or lower min_size",
        )
