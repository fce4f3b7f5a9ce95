"""Patches as Talos reads them: fields that it knows, values that it takes, on the machines that may have them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, nearest, shown
from stacks.site.checks import patches as patches_by_key
from stacks.site.reading.levels import LEVELS, MACHINES, machines_of
from stacks.site.reading.raw import at, items, mapping, matching
from talos.documents import fields
from talos.documents.document import identity

_WRITABLE = "/var/"
_OF_CONTAINERD = "/etc/cri/conf.d/20-customization.part"
# Fields of a machine config with which Talos refuses that of a worker.
_OF_CONTROL_PLANES = (("cluster", "etcd"), ("machine", "features", "kubernetesTalosAPIAccess"))


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Patches that Talos would refuse, and with them the config of each machine that has them."""
    machines = at(values, *MACHINES)
    patches = [
        ((*MACHINES, *path), mapping(patch))
        for level in LEVELS
        for path, patch in matching(machines, f"{level}patches.<name>")
    ]
    for path, patch in patches:
        if not patches_by_key.is_decided(patch):
            yield from _misfits(path, patch)
        if patch.get("kind") is None:
            yield from _of_control_planes(path, patch, machines)
            yield from _of_files(path, patch)
    yield from _incomplete(patches)


def _misfits(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    for misfit in fields.misfits(patch):
        near = nearest(str(misfit.value) if misfit.path == ("kind",) else misfit.path[-1], misfit.known)
        fix = misfit.fault.fix or f"write {misfit.fault.allowed}"
        yield Problem(
            path=(*path, *misfit.path),
            what=misfit.fault.what,
            got="" if misfit.known else shown(misfit.value),
            allowed="" if misfit.known else misfit.fault.allowed,
            near=near,
            fix=f"write {near}" if near else fix,
        )


def _of_control_planes(path: Path, patch: Mapping[str, Any], machines: Any) -> Iterator[Problem]:
    # A patch of a role or of one node names it after its level.
    level, name = path[len(MACHINES)], path[len(MACHINES) + 1]
    workers = [
        machine.name
        for machine in machines_of(machines)
        if machine.role != "controlplane" and (level == "patches" or name in (machine.role, machine.name))
    ]
    for field in _OF_CONTROL_PLANES:
        if workers and at(patch, *field) is not None:
            yield Problem(
                path=(*path, *field),
                what=f"is for control planes alone, and Talos refuses the config of {workers[0]} with it",
                fix="move the patch to roles.controlplane",
            )


def _of_files(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    """Talos 1.13 stops booting at a file that it may not create (its `writeUserFiles`)."""
    for index, file in enumerate(items(at(patch, "machine", "files"))):
        name = mapping(file).get("path")
        if not isinstance(name, str) or mapping(file).get("op") != "create" or name == _OF_CONTAINERD:
            continue
        plain = posixpath.normpath("/" + name.lstrip("/"))
        if not plain.startswith(_WRITABLE):
            yield Problem(
                path=(*path, "machine", "files", str(index), "path"),
                what=f"lies outside of {_WRITABLE}, where alone Talos creates files; it would not boot",
                got=shown(name),
                allowed=f"a path below {_WRITABLE}, or {_OF_CONTAINERD}",
                fix=f"write /var{plain}",
            )


def _incomplete(patches: list[tuple[Path, Mapping[str, Any]]]) -> Iterator[Problem]:
    """Documents that patches add, and that miss what Talos asks for; several patches may make one document."""
    for path, patch in patches:
        kind = patch.get("kind")
        if not isinstance(kind, str) or "$patch" in patch or patches_by_key.is_decided(patch):
            continue
        together = [other for _, other in patches if identity(other) == identity(patch)]
        for group in fields.required(kind):
            if not any(at(other, *field.split(".")) for other in together for field in group):
                words = " or ".join(group)
                yield Problem(
                    path=(*path, *group[0].split(".")),
                    what=f"is missing, and Talos takes no {kind} without it"
                    if len(group) == 1
                    else f"is missing, and Talos takes no {kind} without {words}",
                    fix=f"add {words}",
                )
