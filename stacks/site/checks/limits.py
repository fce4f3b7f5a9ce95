"""Limits and guarantees of tenants: that something counts them, and that no tenant is guaranteed more than it may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.limits import GUARANTEE, LIMITS
from floor.problems import Path, Problem, shown
from stacks.site.reading.raw import at, mapping, matching, number


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with them, as far as the values can be understood."""
    yield from _limits_of_others(values)
    yield from _more_than_allowed(values)


def _limits_of_others(values: Mapping[str, Any]) -> Iterator[Problem]:
    if at(values, "gateway", "controllers") != "external":
        return
    for key in ("plan", "limits"):
        for path, value in matching(values, f"tenants.<name>.{key}"):
            limits = at(values, "plans", str(value)) if key == "plan" else value
            if value is not None and {*mapping(limits)} != {GUARANTEE}:
                yield Problem(
                    path=path,
                    what="limits a tenant, and gateway.controllers external leaves Envoy Gateway's configuration to "
                    "others: it counts only with the limit service that the program sets there",
                    fix="set gateway.controllers to chart, or take the key out",
                )


def _more_than_allowed(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Guarantees above a token limit of the same tenant; of a plan by itself once, and not for each tenant."""
    plans = mapping(values.get("plans"))
    for plan, spec in plans.items():
        yield from _above(_placed(spec, "plans", str(plan)))
    for tenant, spec in mapping(values.get("tenants")).items():
        plan = str(at(spec, "plan"))
        given = {
            **_placed(plans.get(plan), "plans", plan),
            **_placed(at(spec, "limits"), "tenants", str(tenant), "limits"),
        }
        yield from (problem for problem in _above(given) if problem.path[0] == "tenants")


def _placed(section: Any, *path: str) -> dict[str, tuple[Path, float]]:
    """Each number of a section with its key."""
    numbers = {key: number(value) for key, value in mapping(section).items()}
    return {key: ((*path, key), most) for key, most in numbers.items() if most is not None}


def _above(given: Mapping[str, tuple[Path, float]]) -> Iterator[Problem]:
    limits = [given[limit.key] for limit in LIMITS if limit.counts_tokens and limit.key in given]
    if not limits or GUARANTEE not in given:
        return
    (here, guaranteed), (there, most) = given[GUARANTEE], min(limits, key=lambda limit: limit[1])
    if guaranteed <= most:
        return
    if here[0] == "tenants" or there[0] == "plans":
        yield Problem(
            path=here,
            what=f"is more than the tenant may use by {'.'.join(there)}, {most}",
            got=shown(guaranteed),
            allowed=f"at most {most}",
            fix=f"write {most} or less, or raise that limit to {guaranteed}",
        )
    else:
        yield Problem(
            path=there,
            what=f"is less than the tenant is guaranteed by {'.'.join(here)}, {guaranteed}",
            got=shown(most),
            allowed=f"at least {guaranteed}",
            fix=f"write {guaranteed} or more, or lower that guarantee to {most}",
        )
