"""Whether adapters have names of their own and callers, and fit every revision of their model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, shown
from stacks.facts import catalogue
from stacks.site.checks.model_callers import not_a_caller
from stacks.site.reading.raw import at, items, mapping, matching


def each_adapter(values: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Key and name of each adapter of a site."""
    for path, _ in matching(values, "models.<name>.adapters.<name>"):
        yield path, path[-1]


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with adapters, as far as the values can be understood."""
    for path, name in each_adapter(values):
        model = str(path[1])
        yield from _commits(values, path)
        yield from _callers(values, path, model)
        yield from _of_the_canary(path, name, at(values, "models", model))


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
