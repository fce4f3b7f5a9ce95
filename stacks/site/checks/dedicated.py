"""Whether dedicated replicas of a model have tenants of their own, and names that no other object has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.inference_pool import picker_name
from floor.problems import Path, Problem
from floor.revision_ids import RevisionId
from stacks.facts import catalogue
from stacks.site.checks.model_callers import not_a_caller
from stacks.site.checks.models import hits
from stacks.site.reading.raw import at, items, mapping, matching

# Of a label's value, and of a Service's name.
_LONGEST_NAME = 63


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with dedicated replicas, as far as the values can be understood."""
    for name, model in mapping(values.get("models")).items():
        groups = mapping(at(model, "dedicated"))
        if not groups:
            continue
        path: Path = ("models", str(name), "dedicated")
        if (decider := at(values, "callers", "decided_by")) != "gatekeeper":
            yield Problem(
                path=path,
                what="needs the gatekeeper, which decides which replicas answer a tenant",
                got=f"callers.decided_by {decider or 'gateway'}",
                allowed="callers.decided_by: gatekeeper",
                fix="set callers.decided_by to gatekeeper, or take dedicated out",
            )
        entry = at(model, "catalogue")
        if entry in catalogue.names() and catalogue.load(str(entry)).task == "rerank":
            yield Problem(
                path=path,
                what="is of a model whose task is rerank: no gatekeeper chooses where requests to rank go",
                fix="take it out, and serve these tenants a model with a name of its own",
            )
        yield from _names(str(name), [str(group) for group in groups])
        yield from _tenants(values, path, str(name), groups)
        for group, spec in groups.items():
            if mapping(at(spec, "load")).keys() & {"prefix_hit", "common_prefix"}:
                load = {**mapping(at(model, "load")), **mapping(at(spec, "load"))}
                yield from hits((*path, str(group)), {**model, "load": load})


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Shared replicas that no tenant is left for, and dedicated ones that wait for theirs."""
    tenants = mapping(values.get("tenants"))
    for name, model in mapping(values.get("models")).items():
        groups = mapping(at(model, "dedicated")).values()
        own = [tenant for group in groups for tenant in items(at(group, "tenants"))]
        callers = [tenant for tenant, spec in tenants.items() if name in items(at(spec, "models"))]
        stand_in = any(at(group, "when_away") == "shared" for group in groups)
        if own and not stand_in and all(tenant in own for tenant in callers):
            yield Problem(
                path=("models", str(name), "server"),
                what="answers no tenant: all that may call the model have dedicated replicas",
                fix="leave a tenant out of dedicated, or set when_away to shared there",
            )
    for place, names in matching(values, "models.<name>.dedicated.<name>.tenants"):
        if names == []:
            yield Problem(
                path=place,
                what="names no tenant, and its replicas hold GPUs",
                fix="add the tenants with another `up` once these are ready, or take the replicas out",
            )


def _names(model: str, groups: list[str]) -> Iterator[Problem]:
    longest = _LONGEST_NAME - len(picker_name(RevisionId(model, group="-").name)) + 1
    for group in groups:
        path: Path = ("models", model, "dedicated", group)
        picker = picker_name(RevisionId(model, group=group).name)
        if len(group) > longest:
            yield Problem(
                path=path,
                what=f"is too long a name: its picker would be called {picker}",
                got=f"{len(group)} letters",
                allowed=f"at most {longest} for {model}",
                fix="rename it",
            )
        if (taken := picker_name(group)) in groups:
            yield Problem(
                path=(*path[:-1], taken),
                what=f"has the name of the endpoint picker of {'.'.join(path)}",
                fix=f"rename one of the two; a name that ends in {taken.removeprefix(group)} is best avoided",
            )


def _tenants(values: Mapping[str, Any], path: Path, model: str, groups: Mapping[Any, Any]) -> Iterator[Problem]:
    taken: dict[Any, str] = {}
    pinned = mapping(at(values, "models", model, "canary", "pinned"))
    for group, spec in groups.items():
        for index, tenant in enumerate(items(at(spec, "tenants"))):
            here = (*path, str(group), "tenants", str(index))
            if not isinstance(tenant, str):
                continue
            yield from not_a_caller(values, here, tenant, model, "so it needs no replicas of it")
            if tenant in taken:
                yield Problem(
                    path=here,
                    what=f"{tenant} has dedicated replicas of {model} already, in {taken[tenant]}",
                    fix="take one of the two out",
                )
            taken.setdefault(tenant, f"models.{model}.dedicated.{group}")
            if tenant in pinned:
                yield Problem(
                    path=("models", model, "canary", "pinned", tenant),
                    what=f"has replicas of its own, {taken[tenant]}, and gets no other revision",
                    fix="take it out",
                )
