"""Verdicts on tiers: which tenant has which tier, and its priority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict

_LISTENER = "Envoy replaces its listener"
_CUT = "streams older than the drain time are cut"


def policy(change: Change) -> list[Verdict]:
    """The policy that gives requests their tier: its script is the listener's, its table of tenants the routes'."""
    if change.op == "create":
        reason = f"the script that knows tiers becomes part of one that is there already; {_CUT}"
        return [verdict(change, Severity.RESTARTS, _LISTENER, reason), *_moves(change)]
    if change.op in ("delete", "replace"):
        reason = (
            f"its script goes; every tenant has priority 0 {'from then on' if change.op == 'delete' else 'meanwhile'}"
        )
        return [verdict(change, Severity.RESTARTS, _LISTENER, f"{reason}, and {_CUT}")]
    moves = _moves(change)
    if any("filterContext" not in leaf.path for leaf in change.fields()):
        paths = ", ".join(leaf.path for leaf in change.fields() if "filterContext" not in leaf.path)
        return [verdict(change, Severity.RESTARTS, _LISTENER, f"{paths} changes; {_CUT}"), *moves]
    return moves or [verdict(change, Severity.LIVE, "changed in place", "no tenant's tier changes")]


def _moves(change: Change) -> list[Verdict]:
    before, after = _tier_of(change.before), _tier_of(change.after)
    verdicts = []
    for tenant in sorted({*before, *after}):
        old, new = before.get(tenant), after.get(tenant)
        if old == new:
            continue
        what = f"tenant {tenant}: {f'tier {old}' if old else 'no tier'} -> {f'tier {new}' if new else 'no tier'}"
        reason = "for requests that begin from then on"
        verdicts.append(verdict(change, Severity.LIVE, what, reason, tenants=[tenant]))
    return verdicts


def _tier_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Tenant -> tier, out of the policy's inputs."""
    tiers: dict[str, str] = {}
    for script in (body.get("spec") or {}).get("lua") or ():
        tiers |= {str(tenant): str(tier) for tenant, tier in (script.get("filterContext") or {}).items()}
    return tiers


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
