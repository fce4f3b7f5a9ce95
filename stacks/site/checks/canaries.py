"""Whether a canary differs from its model as it may, and whether it would do as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from floor.problems import Path, Problem, shown
from stacks.facts import catalogue
from stacks.site.checks import engine_arguments, models, revisions, slices
from stacks.site.checks.model_callers import not_a_caller
from stacks.site.reading.raw import at, mapping

_MERGED = ("server", "pool", "overrides")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with canaries, as far as the values can be understood."""
    for name, model in mapping(values.get("models")).items():
        canary = at(model, "canary")
        if not isinstance(canary, Mapping):
            continue
        path: Path = ("models", str(name), "canary")
        if (decider := at(values, "callers", "decided_by")) != "gatekeeper":
            yield Problem(
                path=path,
                what="needs the gatekeeper, which decides which revision a session has",
                got=f"callers.decided_by {decider or 'gateway'}",
                allowed="callers.decided_by: gatekeeper",
                fix="set callers.decided_by to gatekeeper, or take the canary out",
            )
        if at(canary, "server", "scaling") is not None:
            yield Problem(
                path=(*path, "server", "scaling"),
                what="a canary's replicas are a number, which its share of the load is proven for",
                fix="take it out, and write the canary's server.replicas",
            )
        yield from _pinned(values, str(name), canary)
        others = [*_task(path, model, canary)]
        yield from others or _by_itself(values, str(name), model, canary)


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Canaries that try nothing."""
    for name, model in mapping(values.get("models")).items():
        canary = at(model, "canary")
        if isinstance(canary, Mapping) and _compared(_merged(model, canary)) == _compared(mapping(model)):
            yield Problem(
                path=("models", str(name), "canary"),
                what="is the same as the model itself, and holds GPUs of its own",
                fix=f"take it out once all replicas of {name} are ready",
            )


def _compared(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """All that a canary may try, without how many replicas do."""
    server = {key: value for key, value in mapping(model.get("server")).items() if key not in {"replicas", "scaling"}}
    return {key: model.get(key) for key in ("catalogue", "pool", "overrides")} | {"server": server}


def _pinned(values: Mapping[str, Any], name: str, canary: Mapping[str, Any]) -> Iterator[Problem]:
    for tenant in mapping(canary.get("pinned")):
        path = ("models", name, "canary", "pinned", str(tenant))
        yield from not_a_caller(values, path, str(tenant), name, "so it has no revision to stay on")


def _task(path: Path, model: Any, canary: Mapping[str, Any]) -> Iterator[Problem]:
    """Clients call both by one name and one path; requests to rank go around what chooses a revision."""
    entries = [at(model, "catalogue"), canary.get("catalogue", at(model, "catalogue"))]
    if any(entry not in catalogue.names() for entry in entries):
        return
    task, other = (catalogue.load(str(entry)).task for entry in entries)
    if task == "rerank":
        yield Problem(
            path=path,
            what=f"is of a model whose task is {task}: no gatekeeper chooses where requests to rank go",
            fix="take it out, and serve the other revision as a model with a name of its own",
        )
    elif task != other:
        yield Problem(
            path=(*path, "catalogue"),
            what=f"has another task than the model, whose clients would get no answer: {other} in place of {task}",
            got=shown(entries[1]),
            fix=f"name an entry whose task is {task}",
        )


def _by_itself(values: Mapping[str, Any], name: str, model: Any, canary: Mapping[str, Any]) -> Iterator[Problem]:
    """What would be wrong with it as a model, and is not wrong with its model already."""
    there = {*_of_model(values, name, model)}
    for problem in _of_model(values, name, _merged(model, canary)):
        if problem not in there:
            below = problem.path[2:] if {*problem.path[2:3]} & canary.keys() else ()
            yield replace(problem, path=("models", name, "canary", *below))


def _of_model(values: Mapping[str, Any], name: str, model: Any) -> Iterator[Problem]:
    alone = {**values, "models": {name: model}}
    for problem in (
        *engine_arguments.problems(alone["models"]),
        *models.problems(alone),
        *revisions.problems(alone),
        *slices.problems(alone),
    ):
        if problem.path[:2] == ("models", name):
            yield problem


def _merged(model: Any, canary: Mapping[str, Any]) -> Mapping[str, Any]:
    """As `OrderedModelSpec.of_canary` has it, of plain values."""
    merged = {key: value for key, value in mapping(model).items() if key not in {"canary", "dedicated"}}
    if "catalogue" in canary:
        merged["catalogue"] = canary["catalogue"]
    for key in _MERGED:
        if isinstance(own := canary.get(key), Mapping):
            merged[key] = {**mapping(merged.get(key)), **own}
    return merged
