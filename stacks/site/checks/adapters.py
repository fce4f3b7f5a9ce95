"""Whether adapters have names of their own and callers, and fit every revision of their model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.adapters import MOST_PLACED
from floor.problems import Path, Problem, shown
from stacks.facts import catalogue
from stacks.site.checks.model_callers import not_a_caller
from stacks.site.reading.raw import at, items, mapping, matching


def each_adapter(values: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Key and name of each adapter of a site."""
    for path, _ in matching(values, "models.<name>.adapters.<name>"):
        yield path, path[-1]


# etcd takes no object above 1.5 MiB, nor the API server a ConfigMap above 1 MiB; tenants have their part of it.
_MOST_BYTES = 600_000
# Of an adapter in the gatekeepers' file, beside names: in `names` and in `adapters`.
_ENTRY_BYTES = 64


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with adapters, as far as the values can be understood."""
    for name, model in mapping(values.get("models")).items():
        yield from _many(values, ("models", str(name)), model)
    yield from _listed(values)
    for path, name in each_adapter(values):
        model = str(path[1])
        yield from _commits(values, path)
        yield from _callers(values, path, model)
        yield from _of_the_canary(path, name, at(values, "models", model))


def _many(values: Mapping[str, Any], path: Path, model: Any) -> Iterator[Problem]:
    """Hundreds take turns on a GPU, and their names are data of the gatekeepers alone."""
    count, places = len(mapping(at(model, "adapters"))), at(model, "server", "resident_adapters")
    if places is not None and not count:
        yield Problem(
            path=(*path, "server", "resident_adapters"),
            what="has no adapters to place",
            got=shown(places),
            fix="take it out, or write adapters",
        )
    if count <= MOST_PLACED:
        return
    if places is None:
        yield Problem(
            path=(*path, "adapters"),
            what=f"has more than {MOST_PLACED} adapters, and each would have a place on every GPU",
            got=str(count),
            fix=f"write server.resident_adapters: {MOST_PLACED}, so that they take turns",
        )
    if at(values, "callers", "decided_by") != "gatekeeper" or at(values, "callers", "keep_both"):
        yield Problem(
            path=(*path, "adapters"),
            what=f"has more than {MOST_PLACED} adapters, whose callers are a list in an object of the gateway",
            got=str(count),
            fix="write callers: {decided_by: gatekeeper}, without keep_both",
        )


def _listed(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The gatekeepers' file is one ConfigMap."""
    sizes = {}
    for path, name in each_adapter(values):
        tenants = [str(tenant) for tenant in items(at(values, *path, "tenants"))]
        sizes[path] = _ENTRY_BYTES + 2 * len(name) + 2 * len(str(path[1])) + sum(len(tenant) + 4 for tenant in tenants)
    if (total := sum(sizes.values())) > _MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        yield Problem(
            path=(*largest, "tenants") if at(values, *largest, "tenants") else largest,
            what="makes the list of all adapters and their tenants larger than an object of the cluster may be",
            got=f"{total:,} bytes in all",
            allowed=f"{_MOST_BYTES:,}",
            fix="leave tenants out where all tenants of the model may call an adapter, or serve some adapters on a "
            "site of their own",
        )


def _commits(values: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """A volume has a folder for each commit; repositories that were copied have one in common."""
    adapters = mapping(at(values, *path[:-1]))
    own = mapping(adapters.get(path[-1]))
    entry = at(values, *path[:2], "catalogue")
    base = catalogue.load(str(entry)) if entry in catalogue.names() else None
    if base and own.get("revision") in (base.revision, at(values, *path[:2], "server", "revision")):
        yield Problem(
            path=(*path, "revision"),
            what=f"is the commit of {base.repository} itself",
            got=shown(own.get("revision")),
            fix="write the commit of the adapter's repository",
        )
    for name, other in adapters.items():
        if str(name) == path[-1]:
            return
        same = own.get("revision") and own.get("revision") == at(other, "revision")
        if same and own.get("repository") != at(other, "repository"):
            yield Problem(
                path=(*path, "repository"),
                what=f"has the commit of {at(other, 'repository')}, and a model's volume has one folder for a commit",
                got=shown(own.get("repository")),
                fix=f"write {at(other, 'repository')}, if both are the same; otherwise the commit of each",
            )


def _callers(values: Mapping[str, Any], path: Path, model: str) -> Iterator[Problem]:
    for index, tenant in enumerate(items(at(values, *path, "tenants"))):
        if isinstance(tenant, str):
            yield from not_a_caller(values, (*path, "tenants", str(index)), tenant, model, "whose adapter this is")


def _of_the_canary(path: Path, name: str, model: Any) -> Iterator[Problem]:
    """Both revisions have the same adapters, as clients call them by one name."""
    entries = [at(model, "catalogue"), at(model, "canary", "catalogue")]
    if any(entry not in catalogue.names() for entry in entries):
        return
    own, other = (catalogue.load(str(entry)).repository for entry in entries)
    if own != other:
        yield Problem(
            path=path,
            what=f"was made for {own}, and the canary would have it on {other}",
            got=shown(name),
            fix="take the adapters out, or serve the other weights as a model with a name of its own",
        )
