"""Limits and guarantees of tenants: that something counts them, and that no tenant is guaranteed more than it may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.limits import GUARANTEE, LIMITS
from floor.problems import Path, Problem, nearest, shown
from stacks.site.reading.raw import at, items, mapping, matching, number

_MINUTES = {"Minute": 1, "Hour": 60, "Day": 24 * 60}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with them, as far as the values can be understood."""
    yield from _limits_of_others(values)
    yield from _more_than_allowed(values)
    for tenant, spec in mapping(values.get("tenants")).items():
        yield from _narrower(values, str(tenant), spec)


def _limits_of_others(values: Mapping[str, Any]) -> Iterator[Problem]:
    if at(values, "gateway", "controllers") != "external":
        return
    for key in ("plan", "limits", "model_limits.<name>", "keys.<name>.limits"):
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
        yield from _above_models(str(tenant), spec, given)


def _above_models(tenant: str, spec: Any, given: Mapping[str, tuple[Path, float]]) -> Iterator[Problem]:
    """A guarantee above what the limits of all models of a tenant let it use together; none where one has no limit."""
    limits = mapping(at(spec, "model_limits"))
    names = {name for name in items(at(spec, "models")) if isinstance(name, str)}
    rates = [_rate(_placed(limits.get(name), "tenants", tenant, "model_limits", name)) for name in names]
    bounded = [rate for rate in rates if rate is not None]
    if GUARANTEE not in given or not names or len(bounded) < len(names):
        return
    (here, guaranteed), lower = given[GUARANTEE], int(sum(bounded))
    if guaranteed <= sum(bounded):
        return
    own = f"tenants.{tenant}.limits.{GUARANTEE}"
    yield Problem(
        path=here if here[0] == "tenants" else ("tenants", tenant, "model_limits"),
        what=f"the tenant is guaranteed {guaranteed} tokens in a minute by {'.'.join(here)}, and the limits of all its "
        "models together let it use less",
        got=f"{lower} in a minute over {', '.join(sorted(names))}",
        allowed=f"limits that add up to {guaranteed} in a minute, or a model without one",
        fix=f"raise them by {guaranteed - lower} tokens_per_minute together, or "
        + (f"write {lower} or less into {own}" if lower else f"take the guarantee out of {'.'.join(here)}"),
    )


def _rate(given: Mapping[str, tuple[Path, float]]) -> float | None:
    """Tokens in a minute by the narrowest limit; None without one."""
    counted = [limit for limit in LIMITS if limit.counts_tokens and limit.key in given]
    return min((given[limit.key][1] / _MINUTES[limit.unit] for limit in counted), default=None)


def _narrower(values: Mapping[str, Any], tenant: str, spec: Any) -> Iterator[Problem]:
    """Limits of keys and models that are never reached: of a model that it may not call, or above its own."""
    names = [name for name in items(at(spec, "models")) if isinstance(name, str)]
    for model in mapping(at(spec, "model_limits")):
        if model not in names:
            near = nearest(str(model), names)
            yield Problem(
                path=("tenants", tenant, "model_limits", str(model)),
                what="limits a model that the tenant may not call",
                allowed=", ".join(names),
                near=near,
                fix=f"write {near}" if near else f"add it to tenants.{tenant}.models, or take it out",
            )
    plan = str(at(spec, "plan"))
    own = {
        **_placed(at(values, "plans", plan), "plans", plan),
        **_placed(at(spec, "limits"), "tenants", tenant, "limits"),
    }
    sections: list[tuple[Path, Any]] = [
        *((("keys", str(key), "limits"), at(given, "limits")) for key, given in mapping(at(spec, "keys")).items()),
        *((("model_limits", str(name)), given) for name, given in mapping(at(spec, "model_limits")).items()),
    ]
    for where, section in sections:
        for key, (path, most) in _placed(section, "tenants", tenant, *where).items():
            there, whole = own.get(key, ((), most))
            if most > whole:
                yield Problem(
                    path=path,
                    what=f"is more than the tenant may use in all by {'.'.join(there)}, {whole}, so it limits nothing",
                    got=shown(most),
                    allowed=f"at most {whole}",
                    fix=f"write {whole} or less, or take it out",
                )


def _placed(section: Any, *path: str) -> dict[str, tuple[Path, float]]:
    """Each number of a section with its key."""
    numbers = {key: number(value) for key, value in mapping(section).items()}
    return {key: ((*path, key), most) for key, most in numbers.items() if most is not None}


def _above(given: Mapping[str, tuple[Path, float]]) -> Iterator[Problem]:
    limits = [
        (*given[limit.key], _MINUTES[limit.unit]) for limit in LIMITS if limit.counts_tokens and limit.key in given
    ]
    if not limits or GUARANTEE not in given:
        return
    (here, guaranteed), (there, most, minutes) = given[GUARANTEE], min(limits, key=lambda limit: limit[1] / limit[2])
    if guaranteed * minutes <= most:
        return
    lower = int(most // minutes)
    if here[0] == "tenants" or there[0] == "plans":
        yield Problem(
            path=here,
            what=f"is more than the tenant may use by {'.'.join(there)}, {most}",
            got=shown(guaranteed),
            allowed=f"at most {lower} in a minute",
            fix=f"write {lower} or less, or raise that limit to {guaranteed * minutes}"
            if lower
            else f"raise that limit to {guaranteed * minutes}, or take the guarantee out",
        )
    else:
        yield Problem(
            path=there,
            what=f"is less than the tenant is guaranteed by {'.'.join(here)}, {guaranteed} in a minute",
            got=shown(most),
            allowed=f"at least {guaranteed * minutes}",
            fix=f"write {guaranteed * minutes} or more, or lower that guarantee to {lower}",
        )
