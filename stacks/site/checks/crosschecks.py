"""Rules between keys, over plain values: they also report problems if other keys of the file are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from components.specs.inference_pool import picker_name
from components.specs.model_server import ModelServerSpec
from floor.problems import Path, Problem, nearest, shown
from floor.revision_ids import RevisionId
from floor.spec import MOST_SECONDS, fitting_name, is_plain_name
from stacks.site.checks import (
    adapters,
    administrators,
    autoscaling,
    bgp,
    callers,
    canaries,
    certificates,
    database,
    dedicated,
    disks,
    dns,
    encryption,
    engine_arguments,
    firewall,
    forms,
    identities,
    kernel,
    kubelet,
    limits,
    links,
    machines,
    models,
    monitoring,
    networks,
    orders,
    overflows,
    patch_fields,
    patches,
    peers,
    pools,
    rdma_devices,
    revisions,
    routes,
    secrets,
    servers,
    several_nodes,
    slices,
    sources,
    subnets,
    usage,
    volume_classes,
    volumes,
)
from stacks.site.checks.products import nearest_product
from stacks.site.machines import MachinesSpec
from stacks.site.model import CHOICES
from stacks.site.reading.raw import at, mapping, matching

Where = Callable[[Path], str]
"""` (file:line)` of a key, for texts that name a second one; empty where no line is known."""

_DRAIN_S = int(MachinesSpec.model_fields["drain_timeout_s"].default)
_STREAM_S = int(ModelServerSpec.model_fields["longest_stream_s"].default)
# In addition to its streams: notice, shutdown, and the time until the node knows that the pod ended.
_LEAVING_S = 60


def problems(values: Mapping[str, Any], where: Where, *, malformed: bool) -> list[Problem]:
    """Everything that is wrong between the keys of `values`.

    malformed: a value has a wrong type, reported already; a check that cannot read it reports what it found before.
    """
    problems_so_far: list[Problem] = []
    for check in (
        _not_listed(values),
        _models_of_tenants(values, where),
        _named_by_tenants(values, where, "tier", without="priority 0"),
        _named_by_tenants(values, where, "plan", without="no limit"),
        _names_that_collide(values, where),
        _aliases(values, where),
        _drains_and_streams(values, where),
        adapters.problems(values),
        administrators.problems(values),
        autoscaling.problems(values),
        callers.problems(values),
        canaries.problems(values),
        database.problems(values),
        dedicated.problems(values),
        forms.problems(values),
        engine_arguments.problems(values.get("models")),
        machines.problems(values),
        firewall.problems(values),
        subnets.problems(values),
        networks.problems(values),
        orders.problems(values),
        overflows.problems(values),
        routes.problems(values),
        servers.problems(values),
        several_nodes.problems(values),
        pools.problems(values),
        bgp.problems(values),
        links.problems(values),
        volume_classes.problems(values),
        peers.problems(values),
        disks.problems(values),
        dns.problems(values),
        encryption.problems(values),
        identities.problems(values),
        volumes.problems(values),
        patches.problems(values),
        patch_fields.problems(values),
        kubelet.problems(values),
        kernel.problems(values),
        limits.problems(values),
        models.problems(values),
        slices.problems(values),
        rdma_devices.problems(values),
        certificates.problems(values),
        secrets.problems(values),
        monitoring.problems(values),
        revisions.problems(values),
        sources.problems(values),
        usage.problems(values),
    ):
        try:
            # One after the other: those before a value that cannot be read stay.
            for problem in check:
                problems_so_far.append(problem)
        except (AttributeError, KeyError, TypeError, ValueError):
            if not malformed:
                raise
    return [*problems_so_far, *_of_orderable(values, where, malformed=malformed)]


def _of_orderable(values: Mapping[str, Any], where: Where, *, malformed: bool) -> Iterator[Problem]:
    """What would be wrong with a model that may be ordered if the site served it."""
    for name, spec in mapping(values.get("orderable")).items():
        served = {**values, "models": {**mapping(values.get("models")), name: spec}, "orderable": {}}
        for problem in problems(served, where, malformed=malformed):
            if problem.path[:2] == ("models", str(name)):
                yield replace(problem, path=("orderable", *problem.path[1:]))


def warnings(values: Mapping[str, Any]) -> list[Problem]:
    """What works between the keys of a valid site, and is not wise."""
    return [
        *machines.warnings(values),
        *administrators.warnings(values),
        *encryption.warnings(values),
        *firewall.warnings(values),
        *pools.warnings(values),
        *monitoring.warnings(values),
        *volume_classes.warnings(values),
        *servers.warnings(values),
        *several_nodes.warnings(values),
        *models.warnings(values),
        *canaries.warnings(values),
        *dedicated.warnings(values),
        *overflows.warnings(values),
        *slices.warnings(values),
        *rdma_devices.warnings(values),
        *revisions.warnings(values),
        *secrets.warnings(values),
        *database.warnings(values),
        *usage.warnings(values),
    ]


def _not_listed(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Names that should be in a table or folder and are not."""
    for pattern, names in CHOICES.items():
        for path, value in matching(values, pattern):
            if isinstance(value, str) and value not in (words := names()):
                near = nearest_product(value, words)
                source = "the hardware table" if pattern == "cluster.gpu" else "the catalogue"
                yield Problem(
                    path=path,
                    what=f"is not in {source}",
                    got=shown(value),
                    allowed=", ".join(words),
                    near=near,
                    fix=f"write {near}" if near else f"write one of these, or add it to {source}",
                )


def _models_of_tenants(values: Mapping[str, Any], where: Where) -> Iterator[Problem]:
    served = values.get("models", {})
    if not isinstance(served, Mapping):
        return
    names = [str(name) for name in served]
    renamed = _renamed(names)
    there = ", ".join(f"{name}{where(('models', name))}" for name in sorted(names)) or "none"
    model_of = {called: path[1] for path, called in (*_each_alias(values), *adapters.each_adapter(values))}
    for path, wanted in matching(values, "tenants.<name>.models"):
        seen: dict[str, Path] = {}
        for index, name in enumerate(wanted if isinstance(wanted, list) else []):
            here = (*path, str(index))
            if not isinstance(name, str):
                continue
            if name not in names and name not in renamed:
                near = model_of.get(name) or nearest(name, [*filter(is_plain_name, names), *renamed])
                add = f"add {name} below models, or take it out of this list"
                fix = add if is_plain_name(name) else "take it out of this list, and name each model"
                yield Problem(
                    path=path,
                    what=f"names {name}{where(here)}, models has {there}",
                    near=near,
                    fix=f"write {near}" if near else fix,
                )
            elif name in seen:
                yield Problem(path=path, what=f"names {name} twice", fix="take one of the two out")
            seen[name] = here


def _aliases(values: Mapping[str, Any], where: Where) -> Iterator[Problem]:
    """A name leads to one model, or to one adapter of it."""
    taken: dict[str, Path] = {str(name): ("models", str(name)) for name in mapping(values.get("models"))}
    for path, called in (*_each_alias(values), *adapters.each_adapter(values)):
        if called in taken:
            other = taken[called]
            yield Problem(
                path=path,
                what=f"{called} is taken already, by {'.'.join(other)}{where(other)}",
                fix="take one of the two out: a name leads to one model or adapter",
            )
        taken.setdefault(called, path)


def _each_alias(values: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for path, alias in matching(values, "models.<name>.aliases.<name>"):
        if isinstance(alias, str):
            yield path, alias


def _named_by_tenants(values: Mapping[str, Any], where: Where, key: str, *, without: str) -> Iterator[Problem]:
    """Tiers and plans that tenants name and the site has not. without: what a tenant gets that names none."""
    section = f"{key}s"
    known = values.get(section, {})
    if not isinstance(known, Mapping):
        return
    names = [str(name) for name in known]
    renamed = _renamed(names)
    there = ", ".join(f"{name}{where((section, name))}" for name in sorted(names)) or "none"
    for path, name in matching(values, f"tenants.<name>.{key}"):
        if isinstance(name, str) and name not in names and name not in renamed:
            near = nearest(name, [*filter(is_plain_name, names), *renamed])
            add = f"add {name} below {section}, or " if is_plain_name(name) else ""
            yield Problem(
                path=path,
                what=f"names {name or f'no {key}'}, {section} has {there}",
                near=near,
                fix=f"write {near}" if near else f"{add}take the key out for {without}",
            )


def _renamed(names: Iterable[str]) -> set[str]:
    """Names to which those are renamed that are none: a site that has one already is right."""
    return {fitting_name(name) for name in names if not is_plain_name(name)} - {""}


def _names_that_collide(values: Mapping[str, Any], where: Where) -> Iterator[Problem]:
    """Two resources of one name: a model called like the picker of another, keys of tenants with dashes."""
    names = [str(name) for name in mapping(values.get("models"))]
    for name in names:
        if RevisionId.of(name) != RevisionId(name):
            yield Problem(
                path=("models", name),
                what="has the form in which further revisions of a model are called, MODEL--DIGEST or MODEL--for-NAME",
                fix=f"rename it, for example to {name.replace('--', '-')}",
            )
        taken = picker_name(name)
        if taken in names:
            yield Problem(
                path=("models", taken),
                what=f"has the name of the endpoint picker of models.{name}{where(('models', name))}",
                fix=f"rename one of the two; a name that ends in {taken.removeprefix(name)} is best avoided",
            )
    taken_keys: dict[str, Path] = {}
    for path, _ in matching(values, "tenants.<name>.keys.<name>"):
        # Name of the key's resource; state files hold it.
        resource = f"{path[1]}-{path[3]}"
        other = taken_keys.setdefault(resource, path)
        if other != path:
            yield Problem(
                path=path,
                what=f"and {'.'.join(other)}{where(other)} would both be the resource {resource}",
                fix="rename one of the two",
            )


def _drains_and_streams(values: Mapping[str, Any], where: Where) -> Iterator[Problem]:
    """A node is drained for longer than its pods let their streams run on, or each roll of the machines stops there."""
    section = at(values, "cluster", "machines")
    if not isinstance(section, Mapping):
        return
    drain_s = section.get("drain_timeout_s", _DRAIN_S)
    if not isinstance(drain_s, int):
        return
    stream_limits = {
        path: seconds for path, seconds in matching(values, "gateway.longest_stream_s") if isinstance(seconds, int)
    }
    written = dict(matching(values.get("models"), "<name>.server.longest_stream_s"))
    for name in mapping(values.get("models")):
        path = ("models", str(name), "server", "longest_stream_s")
        given = written.get(path[1:])
        stream_limits[path] = given if isinstance(given, int) else _STREAM_S
    most = MOST_SECONDS - _LEAVING_S
    endless = [path for path, seconds in stream_limits.items() if seconds > most]
    for too_long in endless:
        # Beyond the key's own range it is reported already.
        if stream_limits[too_long] <= MOST_SECONDS:
            yield Problem(
                path=too_long,
                what=f"leaves no time to drain a node, which takes {_LEAVING_S} s more and {MOST_SECONDS} s at most",
                got=str(stream_limits[too_long]),
                allowed=f"at most {most}",
                fix=f"write {most} or less",
            )
    longest = max(stream_limits, key=lambda path: stream_limits[path], default=())
    if longest and not endless and drain_s < stream_limits[longest] + _LEAVING_S:
        yield Problem(
            path=("cluster", "machines", "drain_timeout_s"),
            what=f"too short for streams of {stream_limits[longest]} s: {'.'.join(longest)}{where(longest)}",
            got=str(drain_s),
            fix=f"make it {stream_limits[longest] + _LEAVING_S} or more, or let streams end sooner",
        )
