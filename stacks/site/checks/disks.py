"""Which disk is for what: the one that Talos is installed on, Longhorn's, and those of the site's own volumes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from floor import storage_nodes
from floor.problems import Path, Problem, shown
from stacks.site.checks.selectors import canonical, evaluate
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, items, mapping
from talos.documents.checks import labels

# Talos 1.13, system requirements: the smallest disk of a machine. Four times the largest NVMe disk of today.
LEAST_BYTES, MOST_BYTES = 10e9, 1e15
_STORAGE = (*MACHINES, "hgx", "storage", "disks")
# Keys of an install disk that distinguish one disk from another; size and type are shared by many.
_OWN = ("name", "model", "serial", "uuid", "wwid", "bus_path")
_ONE_DISK = ("serial", "uuid", "wwid", "bus_path", "dev_path")
_UNITS = {"": 1, **{prefix: 1000**power for power, prefix in enumerate("kMGTPE", 1)}}
_UNITS |= {"K": 1000} | {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTPE", 1)}
_AMOUNT = re.compile(r"(<=|>=|==|<|>)? ?([0-9.]+) ?([kKMGTPE]i?)?B?")
_ANOTHER = "name another disk, for example by its bus_path or serial"
_SIZE = re.compile(r"disk\.size *(<|>)=? *([0-9]+)u? *\* *([kKMGTPE]i?)B")
_EQUALS = re.compile(r"disk\.(\w+) *== *[\"']([^\"']*)[\"']|[\"']([^\"']*)[\"'] *== *disk\.(\w+)")


@dataclass(frozen=True)
class _Wanted:
    """The disk of a volume: what its CEL condition requires."""

    path: Path
    name: str
    selector: str
    least: float = 0
    known: Mapping[str, str] = field(default_factory=dict)
    simple: bool = True
    """Whether all parts of the condition must hold, so that `known` is true of the disk."""

    @property
    def constant(self) -> bool | None:
        """What the condition is of any disk; None where it depends on the disk."""
        return evaluate(self.selector, {}, system_disk=None)

    @property
    def described(self) -> Mapping[str, str]:
        """What is known of the disk, with what follows from it."""
        nvme = self.known.get("bus_path", "").endswith("/nvme") or "nvme" in self.known.get("dev_path", "")
        return {"transport": "nvme", "rotational": "false", **self.known} if nvme else self.known


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Disks that two things would take."""
    machines = at(values, *MACHINES)
    if not isinstance(machines, Mapping):
        return
    disks = {
        str(name): _wanted((*_STORAGE, str(name), "selector"), str(name), disk.get("selector"), disk.get("min_size"))
        for name, disk in sorted(mapping(at(machines, "hgx", "storage", "disks")).items())
        if isinstance(disk, Mapping)
    }
    longhorn = [disk for disk in disks.values() if disk]
    yield from _twice(longhorn)
    yield from _not_of_a_disk(longhorn, refused=(True, False))
    yield from _of_no_size(longhorn)
    yield from _not_taken_by_longhorn(mapping(at(machines, "hgx", "storage", "disks")))
    for disk in longhorn:
        yield from _of_longhorn(disk, longhorn, list(machines_of(machines)))
    for machine in machines_of(machines):
        own = list(_volumes(machine))
        yield from _not_of_a_disk(own, refused=(False,))
        yield from _of_no_size(own)
        yield from _beside_ephemeral(machine, own)
        yield from _on_a_disk_that_is_taken(machine, own)
        if machine.role == "hgx":
            for volume in own:
                takes = _grows(machine, volume) or not _limited(machine, volume)
                yield from _longhorns_too(volume, longhorn, takes=takes)
            yield from _system_volumes(machine, longhorn)
            yield from _hidden_from_longhorn(machine, longhorn)
            own += longhorn
        yield from _twice([volume for volume in _volumes(machine) if _whole(machine, volume)])
        yield from _installed_over(machine, own)


def _wanted(path: Path, name: str, selector: Any, least: Any) -> _Wanted | None:
    if not isinstance(selector, str):
        return None
    simple = _is_simple(selector)
    known = {first or last: text or other for first, text, other, last in _EQUALS.findall(selector) if simple}
    return _Wanted(path, name, " ".join(selector.split()), amount(least)[1], known, simple)


def _volumes(machine: SiteMachine) -> Iterator[_Wanted]:
    for kind in ("volumes", "raw_volumes"):
        for name, volume in sorted(mapping(machine.keys.get(kind)).items()):
            where = machine.path(kind, str(name), "provisioning", "disk_selector")
            place = mapping(mapping(volume).get("provisioning"))
            wanted = _wanted(where, str(name), place.get("disk_selector"), place.get("min_size"))
            if wanted:
                yield wanted


def _whole(machine: SiteMachine, volume: _Wanted) -> bool:
    """Whether the volume takes a disk for itself; partitions may share one."""
    return bool(at(machine.keys, "volumes", volume.name, "volume_type") == "disk")


def _grows(machine: SiteMachine, volume: _Wanted) -> bool:
    """Whether the volume takes all of its disk."""
    grows = [at(machine.keys, kind, volume.name, "provisioning", "grow") for kind in ("volumes", "raw_volumes")]
    return True in grows or _whole(machine, volume)


def _not_of_a_disk(volumes: list[_Wanted], refused: tuple[bool, ...]) -> Iterator[Problem]:
    """Conditions that do not look at the disk. A partition may be on any; Longhorn takes a whole disk."""
    for volume in volumes:
        result = volume.constant
        if result in refused:
            yield Problem(
                path=volume.path,
                what=f"matches {'every disk, also the one that Talos is installed on' if result else 'no disk'}",
                got=shown(volume.selector),
                fix="name one disk, for example by its bus_path or serial",
            )


def _of_no_size(volumes: list[_Wanted]) -> Iterator[Problem]:
    """Conditions on a disk's size that no disk meets together with the others and with min_size."""
    for volume in volumes:
        most = min(_sizes(volume.selector, "<"), default=None)
        above = max(_sizes(volume.selector, ">"), default=0)
        least = max(volume.least, above)
        if volume.simple and most is None and above > MOST_BYTES:
            most = MOST_BYTES
        if volume.simple and most is not None and least > most:
            yield Problem(
                path=volume.path,
                what=f"takes disks below {most / 1e9:g} GB, and the volume needs {least / 1e9:g} GB",
                got=shown(volume.selector),
                fix="correct the size here, or min_size",
            )


def _of_longhorn(disk: _Wanted, longhorn: list[_Wanted], machines: list[SiteMachine]) -> Iterator[Problem]:
    """Disks of Longhorn that are the install disk's, or another one's of Longhorn."""
    if disk.constant is not None:
        return
    for other in longhorn:
        same = canonical(disk.selector) == canonical(other.selector)
        if other.simple and not same and evaluate(disk.selector, other.described, system_disk=False):
            yield Problem(
                path=disk.path,
                what=f"also matches the disk of {other.name}, so both may be on one disk",
                got=shown(disk.selector),
                fix=_ANOTHER,
            )
            return
    for machine in machines:
        limited = at(machine.keys, "system_volumes", "EPHEMERAL", "provisioning", "max_size")
        if machine.role == "hgx" and not limited and evaluate(disk.selector, {}, system_disk=True):
            yield Problem(
                path=disk.path,
                what="matches the disk that Talos is installed on, all of which EPHEMERAL takes",
                got=shown(disk.selector),
                fix="name another disk, or give system_volumes.EPHEMERAL.provisioning.max_size",
            )
            return


def _not_taken_by_longhorn(disks: Mapping[str, Any]) -> Iterator[Problem]:
    """What Longhorn refuses of one disk, and then takes none of the node (longhorn-manager v1.12.1, types/types.go)."""
    for name, disk in sorted(disks.items()):
        path = (*_STORAGE, str(name))
        for index, tag in enumerate(items(mapping(disk).get("tags"))):
            if isinstance(tag, str) and labels({tag: ""}):
                yield Problem(
                    path=(*path, "tags", str(index)),
                    what="is no tag that Longhorn takes, and with it no disk of the node would be Longhorn's",
                    got=shown(tag),
                    allowed="1 to 63 letters, digits, and inner dashes, dots and underscores",
                    fix="correct it, or take it out",
                )
        size = mapping(disk).get("min_size")
        if 0 < amount(size)[1] < LEAST_BYTES or amount(size)[1] > MOST_BYTES:
            yield Problem(
                path=(*path, "min_size"),
                what="is a size that no disk of a server has; a number without a unit is one of bytes",
                got=shown(size),
                allowed=f"{LEAST_BYTES / 1e9:g}GB to {MOST_BYTES / 1e12:g}TB",
                fix="write the disk's size with its unit, such as 3840GB or 3.84TB",
            )
            continue
        reserved, least = mapping(disk).get("reserved_bytes"), amount(mapping(disk).get("min_size"))[1]
        if isinstance(reserved, int) and 0 < least <= reserved:
            yield Problem(
                path=(*path, "reserved_bytes"),
                what=f"leaves Longhorn nothing of a disk of min_size, {disk['min_size']}; of one with less than is "
                "reserved, it takes no disk of the node",
                got=str(reserved),
                allowed=f"below {least:.0f}",
                fix=f"write {least / 10:.0f} or less, or take it out",
            )


def _hidden_from_longhorn(machine: SiteMachine, longhorn: list[_Wanted]) -> Iterator[Problem]:
    """What Longhorn finds a node's disks by, which the site would set instead of this program."""
    for section, key in (("labels", storage_nodes.LABEL), ("annotations", storage_nodes.DISKS_ANNOTATION)):
        if longhorn and key in mapping(machine.keys.get(section)):
            yield Problem(
                path=machine.path(section, key),
                what="is how Longhorn finds the disks of hgx.storage, and with another value it takes none of them",
                fix="take it out, and list disks in hgx.storage.disks",
            )


def _beside_ephemeral(machine: SiteMachine, volumes: list[_Wanted]) -> Iterator[Problem]:
    """Volumes that only the system disk can have, where Talos leaves them no room."""
    ephemeral = mapping(at(machine.keys, "system_volumes", "EPHEMERAL", "provisioning"))
    if ephemeral.get("max_size") or ephemeral.get("disk_selector"):
        return
    for volume in volumes:
        if volume.constant is None and evaluate(volume.selector, {}, system_disk=False) is False:
            yield Problem(
                path=volume.path,
                what="matches no disk but the one that Talos is installed on, all of which EPHEMERAL takes",
                got=shown(volume.selector),
                fix="name another disk, or give system_volumes.EPHEMERAL.provisioning.max_size",
            )


def _on_a_disk_that_is_taken(machine: SiteMachine, volumes: list[_Wanted]) -> Iterator[Problem]:
    """Volumes for which another one leaves no room on their disk.

    Talos 1.13 makes volumes of the system first, then those that do not grow, then by their max_size; without one, a
    partition takes all that is free (internal/app/machined/pkg/controllers/block/internal/volumes/partition.go).
    """
    ephemeral = mapping(at(machine.keys, "system_volumes", "EPHEMERAL", "provisioning"))
    system = _wanted((), "EPHEMERAL", ephemeral.get("disk_selector"), None)
    takers = [volume for volume in volumes if not _limited(machine, volume)]
    takers += [system] if system and not ephemeral.get("max_size") else []
    for volume in volumes:
        others = [taker for taker in takers if taker.name != volume.name and _is_one_disk(taker, volume)]
        first = [
            taker
            for taker in others
            if taker is system
            # Of two such volumes, the first keeps the disk.
            or (volume in takers and volume.name > taker.name and not _both_whole(machine, taker, volume))
            or (volume not in takers and _grows(machine, volume) and not _grows(machine, taker))
        ]
        if first:
            equals = [volume] if volume in takers and any(taker is not system for taker in first) else []
            unlimited = " and ".join(sorted({taker.name for taker in (*first, *equals)}))
            yield Problem(
                path=volume.path,
                what=f"is on the disk of {first[0].name}, which has no max_size and takes all of it",
                got=shown(volume.selector),
                fix=f"name another disk, or give {unlimited} a max_size",
            )


def _both_whole(machine: SiteMachine, first: _Wanted, second: _Wanted) -> bool:
    """Whether both are reported as volumes that take a disk for themselves."""
    return _whole(machine, first) and _whole(machine, second)


def _limited(machine: SiteMachine, volume: _Wanted) -> bool:
    """Whether a volume leaves what its max_size does not need."""
    kinds = ("volumes", "raw_volumes")
    return any(at(machine.keys, kind, volume.name, "provisioning", "max_size") for kind in kinds)


def _is_one_disk(first: _Wanted, second: _Wanted) -> bool:
    """Whether both conditions name one disk by what no other has."""
    names = ((key, first.known[key]) for key in _ONE_DISK if key in first.known)
    return any(second.known.get(key) == value for key, value in names)


def _twice(volumes: list[_Wanted]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for volume in volumes:
        plain = canonical(volume.selector)
        if plain in seen:
            yield Problem(
                path=volume.path,
                what=f"is also the selector of {seen[plain]}, so both would be on one disk",
                got=shown(volume.selector),
                fix=_ANOTHER,
            )
        seen.setdefault(plain, volume.name)


def _longhorns_too(volume: _Wanted, longhorn: list[_Wanted], *, takes: bool) -> Iterator[Problem]:
    for disk in longhorn:
        taken = takes and disk.simple and evaluate(volume.selector, disk.described, system_disk=False)
        if taken or (disk.known and disk.known == volume.known):
            yield Problem(
                path=volume.path,
                what=f"selects the disk of Longhorn's {disk.name}, which takes all of it",
                got=shown(volume.selector),
                fix="name another disk",
            )
            return


def _system_volumes(machine: SiteMachine, longhorn: list[_Wanted]) -> Iterator[Problem]:
    """Talos's own volumes with a selector of their own; EPHEMERAL takes all of its disk unless a size is given."""
    for name, volume in sorted(mapping(machine.keys.get("system_volumes")).items()):
        place = mapping(mapping(volume).get("provisioning"))
        where = machine.path("system_volumes", str(name), "provisioning", "disk_selector")
        wanted = _wanted(where, str(name), place.get("disk_selector"), place.get("min_size"))
        if wanted:
            yield from _longhorns_too(wanted, longhorn, takes=not place.get("max_size"))


def _installed_over(machine: SiteMachine, volumes: list[_Wanted]) -> Iterator[Problem]:
    chosen = mapping(machine.keys.get("install_disk"))
    if is_every_disk(chosen):
        return
    for volume in volumes:
        # A condition on system_disk keeps the volume off the install disk, or on it on purpose.
        if "system_disk" in volume.selector or not volume.simple:
            continue
        # What is wrong by itself is not compared.
        if volume.constant is False or (volume.constant and volume.path[: len(_STORAGE)] == _STORAGE):
            continue
        if _can_match(chosen, volume):
            selector = ", ".join(f"{key} {value}" for key, value in chosen.items())
            yield Problem(
                path=machine.path("install_disk"),
                what=f"also matches the disk of {volume.name}, so Talos may be installed over it",
                got=selector,
                fix="add what only the boot disk has, such as its model, serial or bus_path",
            )
            return


def is_every_disk(chosen: Mapping[str, Any]) -> bool:
    """Whether each key of an install disk is true of any disk; none names no disk, a problem of its own."""
    sign, size = amount(chosen.get("size"))
    known = {key: text for key, text in chosen.items() if not (isinstance(text, str) and text and not text.strip("*/"))}
    return not known or (known.keys() == {"size"} and sign in (">", ">=") and size <= LEAST_BYTES)


def _can_match(chosen: Mapping[str, Any], volume: _Wanted) -> bool:
    """Whether the install disk can be the disk of the volume: no known property distinguishes them."""
    device = chosen.get("device")
    if device is not None:
        return bool(device == volume.known.get("dev_path"))
    for key in _OWN:
        if key not in chosen:
            continue
        there = volume.known.get("dev_path", "").removeprefix("/dev/") if key == "name" else volume.known.get(key, "")
        # Without the same property on both sides the disks count as different.
        if not there or not fnmatch.fnmatchcase(there, str(chosen[key])):
            return False
    kind = str(chosen.get("type") or "")
    if kind == "hdd" and (
        volume.known.get("transport") == "nvme" or volume.known.get("bus_path", "").endswith("/nvme")
    ):
        return False
    if kind == "nvme" and volume.known.get("transport", "nvme") != "nvme":
        return False
    sign, size = amount(chosen.get("size"))
    return not (size and sign in ("<", "<=", "==", "") and volume.least > size)


def least_size(selector: str) -> float:
    """Bytes that each disk which the condition matches has at least; 0 where it does not state that."""
    return max(_sizes(selector, ">"), default=0) if _is_simple(selector) else 0


def _is_simple(selector: str) -> bool:
    """Whether all parts of the condition must hold."""
    return not any(operator in selector for operator in ("||", "!disk", "!(", "?"))


def _sizes(selector: str, sign: str) -> list[float]:
    """Bytes that the condition compares a disk's size with by this sign."""
    return [float(count) * _UNITS[unit] for compared, count, unit in _SIZE.findall(selector) if compared == sign]


def amount(text: Any) -> tuple[str, float]:
    """Comparison and bytes of a size such as `<= 2TB`; 0 for what is none."""
    match = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    if not match or match[2].count(".") > 1:
        return "", 0
    return match[1] or "", float(match[2]) * _UNITS[match[3] or ""]
