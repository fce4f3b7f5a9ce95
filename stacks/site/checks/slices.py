"""Whether GPUs are cut into slices (MIG) that exist, by something that cuts them, for the models that want them.

NVIDIA's profiles by kind of GPU are in `stacks/facts/mig.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor import gpu_nodes
from floor.problems import Path, Problem, nearest, shown
from stacks.facts.hardware import GPUS, USUAL_GPU
from stacks.facts.mig import WHOLE, cut_kinds, layout_of, profile_of, slices_of
from stacks.site.model import ClusterSpec
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, mapping

_STACK = str(ClusterSpec.model_fields["gpu_stack"].default)
_KEY = "mig"


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that does not go together, as far as the values can be understood."""
    gpu = at(values, "cluster", "gpu") or USUAL_GPU
    if not isinstance(gpu, str) or gpu not in GPUS:
        return
    machines = at(values, *MACHINES)
    cut = {machine.name: machine for machine in machines_of(machines) if isinstance(machine.keys.get(_KEY), str)}
    wrong = dict.fromkeys(problem for machine in cut.values() for problem in _layout(machine, gpu))
    yield from wrong
    hgx = [machine for machine in cut.values() if machine.role == "hgx"]
    if hgx:
        yield from _cutter(values, hgx[0])
    if not isinstance(machines, Mapping):
        yield from _offerer(values)
    for name, model in mapping(values.get("models")).items():
        server = mapping(mapping(model).get("server"))
        if isinstance(server.get("gpu_slice"), str):
            # What a wrong layout offers is unknown.
            yield from _slice(("models", str(name), "server"), server, gpu, None if wrong else machines)


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works, and is not wise."""
    hgx = [machine for machine in machines_of(at(values, *MACHINES)) if machine.role == "hgx"]
    cut = [machine for machine in hgx if machine.keys.get(_KEY)]
    models = mapping(values.get("models")).values()
    wanted = {at(mapping(model), "server", "gpu_slice") for model in models}
    for machine in cut:
        profile = profile_of(str(machine.keys[_KEY]))
        if profile and profile not in wanted:
            yield Problem(
                path=machine.path(_KEY),
                what=f"cuts the GPUs of {machine.name}, and no model has such a slice",
                fix=f"write gpu_slice: {profile} at a model's server, or take mig out",
            )


def _layout(machine: SiteMachine, gpu: str) -> Iterator[Problem]:
    """One machine's layout; at the level that sets it, so that machines that inherit it give one problem."""
    path, layout, profiles = machine.path(_KEY), str(machine.keys[_KEY]), slices_of(gpu)
    if machine.role != "hgx":
        # What all machines inherit cuts those with GPUs alone.
        if path != (*MACHINES, _KEY):
            yield Problem(path=path, what=f"cuts GPUs, and role {machine.role} has none", fix="take it out")
        return
    if not profiles:
        yield _not_known(path, gpu, layout)
    elif layout != WHOLE and profile_of(layout) not in profiles:
        yield _not_listed(path, f"is no layout of {gpu}", layout, [*map(layout_of, profiles), WHOLE])
    elif gpu_nodes.MIG_LAYOUT_LABEL in mapping(machine.keys.get("labels")):
        yield Problem(
            path=machine.path("labels", gpu_nodes.MIG_LAYOUT_LABEL),
            what="is the label that mig becomes",
            fix="take it out, and keep mig",
        )


def _cutter(values: Mapping[str, Any], machine: SiteMachine) -> Iterator[Problem]:
    stack = at(values, "cluster", "gpu_stack") or _STACK
    if stack == "device_plugin":
        yield Problem(
            path=("cluster", "gpu_stack"),
            what=f"installs nothing that cuts GPUs, as mig of {machine.name} wants: the device plugin offers slices "
            "that are there, and NVIDIA's MIG manager comes with the operator alone",
            got=shown(stack),
            allowed="external",
            fix="write external where the site itself cuts GPUs and offers slices; else take mig out, and gpu_slice at "
            "models",
        )


def _offerer(values: Mapping[str, Any]) -> Iterator[Problem]:
    """On a cluster that exists, no machine of the site names a layout, and the stacks offer whole GPUs alone."""
    stack = at(values, "cluster", "gpu_stack") or _STACK
    wants = [name for name, model in mapping(values.get("models")).items() if at(mapping(model), "server", "gpu_slice")]
    if wants and stack in ("operator", "device_plugin"):
        yield Problem(
            path=("cluster", "gpu_stack"),
            what=f"offers whole GPUs alone on machines that the site does not list, and {wants[0]} wants a slice",
            got=shown(stack),
            allowed="external",
            fix="write external where the cluster offers slices, or take gpu_slice out",
        )


def _slice(server_path: Path, server: Mapping[str, Any], gpu: str, machines: Any) -> Iterator[Problem]:
    path, profile, profiles = (*server_path, "gpu_slice"), str(server["gpu_slice"]), slices_of(gpu)
    if not profiles:
        yield _not_known(path, gpu, profile)
        return
    if profile not in profiles:
        yield _not_listed(path, f"is no MIG profile of {gpu}", profile, [*profiles])
        return
    sizes = [("gpus", server.get("gpus"))]
    sizes += [(f"layout.{key}", mapping(server.get("layout")).get(key)) for key in ("tensor", "data", "pipeline")]
    for key, size in sizes:
        if isinstance(size, int) and size > 1:
            yield Problem(
                path=(*server_path, *key.split(".")),
                what="a replica has one MIG slice: slices do not reach each other's memory over NVLink or PCIe",
                got=shown(size),
                allowed="1",
                fix="write 1, or take gpu_slice out",
            )
    if not isinstance(machines, Mapping):
        return
    layouts = {machine.keys.get(_KEY) for machine in machines_of(machines) if machine.role == "hgx"}
    offered = sorted({profile_of(layout) for layout in layouts if isinstance(layout, str)} - {""})
    if profile not in offered and all(layout is None or isinstance(layout, str) for layout in layouts):
        others = f"write one of these, or mig: {layout_of(profile)}" if offered else f"write mig: {layout_of(profile)}"
        yield Problem(
            path=path,
            what="no machine of role hgx is cut into such slices",
            got=shown(profile),
            allowed=", ".join(offered),
            fix=f"{others} at a machine of role hgx, or take gpu_slice out",
        )


def _not_known(path: Path, gpu: str, got: str) -> Problem:
    return Problem(
        path=path,
        what=f"MIG is not known of {gpu}; it is of {', '.join(cut_kinds())}",
        got=shown(got),
        fix="take it out, for whole GPUs",
    )


def _not_listed(path: Path, what: str, got: str, allowed: list[str]) -> Problem:
    # A name without a profile is near to none that has one.
    near = nearest(got, [name for name in allowed if name != WHOLE]) if any(map(str.isdigit, got)) else ""
    fix = f"write {near}" if near else "write one of these, or take it out for whole GPUs"
    return Problem(path=path, what=what, got=shown(got), allowed=", ".join(allowed), near=near, fix=fix)
