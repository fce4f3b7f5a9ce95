"""Whether the model that takes another one's overflow can answer in its place, and for whom it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, nearest, shown
from stacks.facts import catalogue
from stacks.site.reading.raw import at, items, mapping

_TOOLS = "--enable-auto-tool-choice"


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with overflows, as far as the values can be understood."""
    models = mapping(values.get("models"))
    for name, to in _pairs(values):
        path: Path = ("models", name, "overflow")
        if (decider := at(values, "callers", "decided_by")) != "gatekeeper":
            yield Problem(
                path=path,
                what="needs the gatekeeper, which decides which model answers a request",
                got=f"callers.decided_by {decider or 'gateway'}",
                allowed="callers.decided_by: gatekeeper",
                fix="set callers.decided_by to gatekeeper, or take overflow out",
            )
        path = (*path, "to")
        others = [str(other) for other in models if other != name and at(models[other], "overflow") is None]
        if to == name:
            yield Problem(
                path=path,
                what="is the model itself, which has no room then",
                got=shown(to),
                allowed=", ".join(others) or "the site serves no other model",
                fix="name another model",
            )
        elif to not in models:
            near = nearest(to, others)
            yield Problem(
                path=path,
                what="is no model that the site serves; an alias or an adapter is none",
                got=shown(to),
                allowed=", ".join(others) or "the site serves no other model",
                near=near,
                fix=f"write {near}" if near else "name a model of this site",
            )
        elif at(models[to], "overflow") is not None:
            yield Problem(
                path=path,
                what="has an overflow of its own, and a request is sent on once",
                got=shown(to),
                allowed=", ".join(others) or "the site serves no other model",
                fix=f"take models.{to}.overflow out, or name a model without one",
            )
        else:
            yield from _kinds(path, at(models[name], "catalogue"), to, at(models[to], "catalogue"))


def _kinds(path: Path, own: Any, to: str, other: Any) -> Iterator[Problem]:
    """What clients of the one send has to be what the other takes."""
    if any(entry not in catalogue.names() for entry in (own, other)):
        return
    model, target = catalogue.load(str(own)), catalogue.load(str(other))
    if model.task != "generate":
        # Vectors and scores of two models are not comparable.
        yield Problem(
            path=path[:-1],
            what=f"is of a model whose task is {model.task}: figures of two models cannot stand for one another",
            fix="take it out",
        )
    elif target.task != "generate":
        yield Problem(
            path=path,
            what=f"has the task {target.task}, and writes no answers",
            got=shown(to),
            fix="name a model that generates",
        )
    elif model.vision_parameters and not target.vision_parameters:
        yield Problem(
            path=path,
            what="takes no pictures, which clients of this model send",
            got=shown(to),
            fix="name a model that takes pictures, or take overflow out",
        )
    elif _TOOLS in model.engine_flags and _TOOLS not in target.engine_flags:
        yield Problem(
            path=path,
            what="refuses requests with tools, which clients of this model send",
            got=shown(to),
            fix=f"name a model whose entry in the catalogue has {_TOOLS}",
        )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Tenants that accept what they never get, and overflow that no tenant accepts."""
    tenants = mapping(values.get("tenants"))
    accepting = [str(name) for name, spec in tenants.items() if at(spec, "overflow") == "accept"]
    served: dict[str, list[str]] = {
        name: [tenant for tenant in accepting if _may(values, tenant, name, to)] for name, to in _pairs(values)
    }
    for tenant in accepting:
        if any(tenant in others for others in served.values()):
            continue
        pairs = ", ".join(f"{name} and {to}" for name, to in _pairs(values))
        yield Problem(
            path=("tenants", tenant, "overflow"),
            what="changes nothing: this tenant may call no model with overflow beside the one that takes it"
            if pairs
            else "changes nothing: no model of the site has an overflow",
            got="accept",
            fix=f"add both to tenants.{tenant}.models: {pairs}; or take overflow out" if pairs else "take it out",
        )
    for name, others in served.items():
        if not others:
            yield Problem(
                path=("models", name, "overflow"),
                what="takes no request: no tenant that may call both models accepts it",
                fix="write overflow: accept below a tenant that may call both, or take it out",
            )


def _pairs(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each model with an overflow, and the one that takes it."""
    for name, model in mapping(values.get("models")).items():
        if isinstance(to := at(model, "overflow", "to"), str):
            yield str(name), to


def _may(values: Mapping[str, Any], tenant: str, name: str, to: str) -> bool:
    """Whether requests of a tenant for the one model may go to the other: not where it has one revision for sure."""
    pinned = [*mapping(at(values, "models", name, "canary", "pinned"))]
    for group in mapping(at(values, "models", name, "dedicated")).values():
        pinned += items(at(group, "tenants"))
    models = items(at(values, "tenants", tenant, "models"))
    return name in models and to in models and tenant not in pinned
