"""Verdicts on the way to a gatekeeper and back: what one side loses, the other one has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.specs.access import tenant_of
from sitectl.change.changes import Change
from sitectl.change.verdicts import callers, front, tiers
from sitectl.change.verdicts.known_callers import known
from sitectl.change.verdicts.model import Severity, Verdict, own_name, verdict

_GATEKEEPER_FILTER = "inference-platform.gatekeeper"
_SALT = "gatekeeper-salt"
_IN_TWO_STEPS = "set keep_both for one `up` first, and no request is refused"
_NEVER_ASKED = "no connection asks them any more, once the longest stream has ended since keep_both"


@dataclass(frozen=True, kw_only=True)
class Handover:
    """Who decides about callers before and after, out of all changes of a site."""

    secrets_end: bool = False
    """Whether Envoy Gateway compares no keys any more, as a gatekeeper decides alone."""
    secrets_begin: bool = False
    gatekeeper_ends: bool = False
    at_once: bool = False
    """Whether the listener that asks the other side comes in the same `up`."""
    tenants: Mapping[str, Any] = field(default_factory=dict)
    """Inputs of the ConfigMap with tenants where it is made or deleted: what the other side has of them."""
    known: frozenset[str] | None = None
    """Tenants that the gatekeeper has from then on; None where these are the same as before."""
    door_moves: bool = False
    """Whether the front door is made or goes, so that there is no listener with streams to replace."""


def handover(changes: Sequence[Change]) -> Handover:
    """Each part is false where a site stays with what it has, or is new, or goes."""
    policies = [change for change in changes if change.kind == "SecurityPolicy" and change.op == "update"]
    maps = [change for change in changes if change.kind == "ConfigMap" and callers.is_of_tenants(change)]
    doors = [change for change in changes if own_name(change.body) == "front-door"]
    moved = [(_decided(change.before), _decided(change.after)) for change in policies]
    policy_stays = not any(change.kind == "SecurityPolicy" and change.op == "delete" for change in changes)
    return Handover(
        secrets_end=(False, True) in moved,
        secrets_begin=(True, False) in moved,
        gatekeeper_ends=policy_stays and any(change.op == "delete" for change in maps),
        at_once=any(_asks(change.before) != _asks(change.after) for change in doors if change.op == "update"),
        door_moves=any(change.op in ("create", "delete") for change in doors),
        tenants=next((change.body for change in maps if change.op in ("create", "delete")), {}),
        known=next((frozenset(known(change.after)) for change in maps), None),
    )


def verdicts(change: Change, over: Handover) -> list[Verdict] | None:
    """Of what changes because the other side decides; None for everything else."""
    if over.door_moves and (does := front.placed_filter(change)):
        what = f"Envoy {does}{' no more' if change.op == 'delete' else ''}"
        return [verdict(change, Severity.LIVE, what, "with the front door")]
    if change.kind == "SecurityPolicy" and (over.secrets_end or over.secrets_begin):
        what, reason = "a gatekeeper alone decides what tenants may call", "it has all tenants and their models"
        if over.secrets_begin:
            what, reason = "Envoy Gateway has the keys and models of tenants again", "beside the gatekeeper's decision"
        return [verdict(change, Severity.LIVE, what, reason), *front.moved_models(_across(change, over))]
    if change.kind == "EnvoyExtensionPolicy" and (over.secrets_end or over.secrets_begin):
        what = "a gatekeeper" if over.secrets_end else "a script"
        reason = f"{what} gives tenants their tiers and limits; streams older than the drain time are cut"
        again = verdict(change, Severity.RESTARTS, "Envoy replaces its listener", reason)
        return [again, *tiers.moves(_across(change, over))]
    if change.op != "delete":
        return None
    name = own_name(change.body) or change.name
    tenant = tenant_of(name) if change.kind == "Secret" else None
    if over.secrets_end and tenant and (over.known is None or tenant in over.known):
        return [_keys_of(change, tenant, over)]
    ending = over.gatekeeper_ends and change.kind in ("Deployment", "Secret", "")
    return [_of_a_gatekeeper(change, name, over)] if ending and name in _ENDINGS else None


def _keys_of(change: Change, tenant: str, over: Handover) -> Verdict:
    if over.at_once:
        what = f"keys of tenant {tenant} get 401 on connections that are open, for at most the drain time"
        return verdict(change, Severity.REPLACED, what, _IN_TWO_STEPS, tenants=[tenant])
    reason = "the gatekeeper has their digests"
    return verdict(change, Severity.LIVE, f"all keys of tenant {tenant} go on working", reason, tenants=[tenant])


_ENDINGS = {
    "callers-keys": ("digests of keys go", "Envoy Gateway compares the keys themselves"),
    _SALT: ("the salt of prompts goes", "tenants share the engines' caches without a gatekeeper"),
    "gatekeeper": ("stops its pods", _NEVER_ASKED),
    "directory": ("stops its pods", "keys of the directory open nothing without a gatekeeper"),
}


def _of_a_gatekeeper(change: Change, name: str, over: Handover) -> Verdict:
    what, reason = _ENDINGS[name]
    if over.at_once and change.kind == "Deployment":
        return verdict(change, Severity.REPLACED, f"{what}; connections that are open get 503", _IN_TWO_STEPS)
    return verdict(change, Severity.LIVE, what, reason)


def _across(change: Change, over: Handover) -> Change:
    """The change with what the other side has of tenants; nothing where that has not changed, so that no one moves."""
    if over.secrets_end:
        return replace(change, before=change.before if over.tenants else {}, after=over.tenants)
    return replace(change, before=over.tenants, after=change.after if over.tenants else {})


def _decided(policy: Mapping[str, Any]) -> bool:
    """Whether this SecurityPolicy lets pass what a gatekeeper has named, and compares no keys."""
    return "apiKeyAuth" not in (policy.get("spec") or {})


def _asks(door: Mapping[str, Any]) -> bool:
    patches = (door.get("spec") or {}).get("jsonPatches") or ()
    values = [(patch.get("operation") or {}).get("value") for patch in patches]
    return any(isinstance(value, Mapping) and value.get("name") == _GATEKEEPER_FILTER for value in values)
