"""Verdicts on what a tenant gets: its tier with a priority, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sitectl.change.changes import Change
from sitectl.change.verdicts.known_callers import known
from sitectl.change.verdicts.model import Severity, Verdict, verdict

_LISTENER = "Envoy replaces its listener"
_CUT = "streams older than the drain time are cut"


def policy(change: Change) -> list[Verdict]:
    """The policy that gives requests their tier and limits: its scripts are the listener's, its tables the routes'."""
    if change.op == "create":
        reason = f"the script that knows tenants becomes part of one that is there already; {_CUT}"
        return [verdict(change, Severity.RESTARTS, _LISTENER, reason), *moves(change)]
    if change.op in ("delete", "replace"):
        reason = (
            "its script goes; every tenant has priority 0 and no limit "
            f"{'from then on' if change.op == 'delete' else 'meanwhile'}"
        )
        return [verdict(change, Severity.RESTARTS, _LISTENER, f"{reason}, and {_CUT}")]
    moved = moves(change)
    if any("filterContext" not in leaf.path for leaf in change.fields()):
        paths = ", ".join(leaf.path for leaf in change.fields() if "filterContext" not in leaf.path)
        return [verdict(change, Severity.RESTARTS, _LISTENER, f"{paths} changes; {_CUT}"), *moved]
    return moved or [verdict(change, Severity.LIVE, "changed in place", "no tenant's tier or limit changes")]


def moves(change: Change) -> list[Verdict]:
    """One for each tenant with another tier, or with other limits."""
    before, after = _tier_of(change.before), _tier_of(change.after)
    verdicts = []
    for tenant in sorted({*before, *after}):
        old, new = before.get(tenant), after.get(tenant)
        if old == new:
            continue
        what = f"tenant {tenant}: {f'tier {old}' if old else 'no tier'} -> {f'tier {new}' if new else 'no tier'}"
        reason = "for requests that begin from then on"
        verdicts.append(verdict(change, Severity.LIVE, what, reason, tenants=[tenant]))
    return [*verdicts, *_limited(change)]


def _limited(change: Change) -> list[Verdict]:
    before, after = _limits_of(change.before), _limits_of(change.after)
    verdicts = []
    for tenant in sorted({*before, *after}):
        old, new = before.get(tenant, {}), after.get(tenant, {})
        changed = [
            f"{key} {old.get(key, 'unlimited')} -> {new.get(key, 'unlimited')}"
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key)
        ]
        if changed:
            what = f"tenant {tenant}: {', '.join(changed)}"
            reason = "at once, and what it has used in this window counts"
            verdicts.append(verdict(change, Severity.LIVE, what, reason, tenants=[tenant]))
    return verdicts


def _tables(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each tenant with what a script has of it: a tier by name, or limits by key."""
    for script in (body.get("spec") or {}).get("lua") or ():
        yield from (script.get("filterContext") or {}).items()
    for tenant, spec in known(body).items():
        if spec.get("tier"):
            yield tenant, str(spec["tier"])
        counted = {key: limit.get("requests_per_unit", 0) for key, limit in (spec.get("limits") or {}).items()}
        yield tenant, counted | (spec.get("bounds") or {}) | (spec.get("budgets") or {})


def _tier_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Tenant -> tier, out of the policy's inputs."""
    return {tenant: str(known) for tenant, known in _tables(body) if not isinstance(known, Mapping)}


def _limits_of(body: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Tenant -> its limits, out of the policy's inputs. The plugin keeps numbers as floats."""
    return {
        tenant: {key: int(most) if int(most) == most else most for key, most in known.items()}
        for tenant, known in _tables(body)
        if isinstance(known, Mapping)
    }


def objective(change: Change) -> list[Verdict]:
    """What one tier is worth to the picker of one model."""
    old, new = _priority(change.before), _priority(change.after)
    if change.op == "create":
        return [verdict(change, Severity.LIVE, f"priority {new}", _means(new))]
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "deleted", "goes with its tier or its model")]
    if old == new:
        return [verdict(change, Severity.LIVE, "changed in place", "its priority stays")]
    return [verdict(change, Severity.LIVE, f"priority {old} -> {new}", _means(new))]


def _priority(body: Mapping[str, Any]) -> int:
    return int((body.get("spec") or {}).get("priority", 0))


def _means(priority: int) -> str:
    if priority < 0:
        return "its requests are refused (429) while the model's replicas are saturated"
    return "its requests are let through"
