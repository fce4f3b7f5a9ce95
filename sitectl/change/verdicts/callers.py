"""Verdicts on what the gatekeeper knows of callers: tenants with models, tier and limits, and digests of keys."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sitectl.change.changes import Change
from sitectl.change.verdicts import front, tiers
from sitectl.change.verdicts.known_callers import known, parts_that_change
from sitectl.change.verdicts.model import Severity, Verdict, verdict

_UNANSWERED = "Envoy refuses (503) what a gatekeeper does not answer; keys of a directory that is gone work on"
_NEW = "have none of its earlier prompts, so first tokens come later for a while"
_EMPTY = "find none of its earlier prompts any more, so first tokens come later for a while"
# Names of adapters that a row has; of more it has their number.
_FEW = 5
# Name -> what it costs that they are gone.
_PODS = {
    "gatekeeper": _UNANSWERED,
    "directory": _UNANSWERED,
    "ledger": "what it has stays in its database; from then on no request leaves a row",
}


def tenants(change: Change) -> list[Verdict]:
    """The ConfigMap with tenants: each one that gains or loses something. Pods that read it are replaced in turn."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "made", "new")]
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "deleted", "Envoy's own key check takes its place")]
    moved = [*front.moved_models(change), *tiers.moves(change), *_caches(change), *_replicas(change)]
    moved += [*_canaries(change), *_adapters(change)]
    reason = "gatekeepers with the new tenants are ready before the old ones end"
    if others := parts_that_change(change.before, change.after) - {"tenants"}:
        reason = f"other parts change: {', '.join(sorted(others))}; {reason}"
    return moved or [verdict(change, Severity.LIVE, "tenants stay as they are", reason)]


def _caches(change: Change) -> Iterator[Verdict]:
    before, after = known(change.before), known(change.after)
    for tenant in sorted({*before} & {*after}):
        old, new = ("shared" if of[tenant].get("shared") else "own" for of in (before, after))
        if old != new:
            reason = f"engines {_EMPTY}"
            what = f"tenant {tenant}: prefix cache {old} -> {new}"
            yield verdict(change, Severity.LIVE, what, reason, tenants=[tenant])


def _replicas(change: Change) -> Iterator[Verdict]:
    before, after = known(change.before), known(change.after)
    for tenant in sorted({*before} & {*after}):
        old, new = (of[tenant].get("dedicated") or {} for of in (before, after))
        for model in sorted({*old, *new}):
            was, is_ = (own[model]["revision"] if model in own else "shared replicas" for own in (old, new))
            if was != is_:
                what, reason = f"tenant {tenant}: {model} by {was} -> {is_}", f"these {_EMPTY}"
                yield verdict(change, Severity.LIVE, what, reason, tenants=[tenant])


def _canaries(change: Change) -> Iterator[Verdict]:
    before, after = (known(body, "canaries") for body in (change.before, change.after))
    tenants = known(change.after)
    for model in sorted({*before, *after}):
        old, new = before.get(model) or {}, after.get(model) or {}
        served = [name for name, tenant in tenants.items() if model in (tenant.get("models") or ())]
        shares = [f"{canary['percent']} % of its sessions" if canary else "none" for canary in (old, new)]
        if shares[0] != shares[1]:
            what = f"canary of {model}: {shares[0]} -> {shares[1]}"
            yield verdict(change, Severity.LIVE, what, f"replicas that a session moves to {_NEW}", tenants=served)
        elif old.get("revision") != new.get("revision"):
            what = f"canary of {model}: {shares[1]} by {old['revision']} -> {new['revision']}"
            yield verdict(change, Severity.LIVE, what, f"its replicas {_NEW}", tenants=served)
        pins = [canary.get("pinned") or {} for canary in (old, new)]
        for tenant in sorted({*pins[0], *pins[1]} & {*served}):
            was, is_ = (f"pinned to {pinned[tenant]}" if tenant in pinned else "by the share" for pinned in pins)
            if was != is_:
                what = f"tenant {tenant}: {model} {was} -> {is_}"
                yield verdict(change, Severity.LIVE, what, f"replicas that it moves to {_NEW}", tenants=[tenant])


def _adapters(change: Change) -> Iterator[Verdict]:
    """Those that come, go or get other callers; a row of each, or of all of a model where they are many."""
    before, after = (known(body, "adapters") for body in (change.before, change.after))
    came, went = sorted({*after} - {*before}), sorted({*before} - {*after})
    for model, names in _by_model(came, after).items():
        callers = {tenant for name in names for tenant in _callers(change.after, after[name])}
        what = f"{_adapters_of(names, model)}: may be called by {_those(callers)}"
        yield verdict(change, Severity.LIVE, what, "answers once the replicas have it", tenants=sorted(callers))
    for model, names in _by_model(went, before).items():
        callers = {tenant for name in names for tenant in _callers(change.before, before[name])}
        what = f"{_adapters_of(names, model)}: gone, of {_those(callers)}"
        yield verdict(change, Severity.REPLACED, what, "its requests get 404 from then on", tenants=sorted(callers))
    for name in sorted({*before} & {*after}):
        old, new = (_callers(body, of[name]) for body, of in ((change.before, before), (change.after, after)))
        # Of tenants that have lost or got the model itself, there is a row.
        both = {*known(change.before)} & {*known(change.after)}
        if out := sorted((old - new) & both if before[name] != after[name] else ()):
            what = f"adapter {name}: no longer for {', '.join(out)}"
            yield verdict(change, Severity.REPLACED, what, "its requests get 403 from then on", tenants=out)
        if won := sorted((new - old) & both if before[name] != after[name] else ()):
            yield verdict(change, Severity.LIVE, f"adapter {name}: for {', '.join(won)} too", "granted", tenants=won)


def _by_model(names: Sequence[str], grants: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    models: dict[str, list[str]] = {}
    for name in names:
        models.setdefault(str(grants[name].get("model")), []).append(name)
    return models


def _callers(body: Mapping[str, Any], grant: Mapping[str, Any]) -> set[str]:
    """Tenants that may call the adapter: those of its list that may call its model, or all of these."""
    may = {name for name, tenant in known(body).items() if grant.get("model") in (tenant.get("models") or ())}
    return may if grant.get("tenants") is None else may & {str(name) for name in grant["tenants"]}


def _adapters_of(names: Sequence[str], model: str) -> str:
    if len(names) > _FEW:
        return f"{len(names)} adapters of {model}"
    return f"{'adapters' if names[1:] else 'adapter'} {', '.join(names)} of {model}"


def _those(tenants: Collection[str]) -> str:
    return ", ".join(sorted(tenants)) if tenants else "no tenant"


def is_of_tenants(change: Change) -> bool:
    """Whether this ConfigMap is the one with tenants."""
    return bool(known(change.before) or known(change.after)) or "tenants.json" in (change.body.get("data") or {})


def pods(change: Change) -> list[Verdict]:
    """Services of the platform's own: another takes over before one ends, and no stream passes them."""
    match change.op:
        case "create":
            return [verdict(change, Severity.LIVE, "starts two pods", "new"), *_signals(change)]
        case "update":
            reason = "a new one is ready before an old one ends, and streams do not pass them"
            again = verdict(change, Severity.LIVE, "its pods start again, one after the other", reason)
            return [again, *_signals(change)]
    return [verdict(change, Severity.REPLACED, "stops its pods", _PODS[_name(change)])]


def _signals(change: Change) -> Iterator[Verdict]:
    """What keys are watched by, and whom that suspends, where it differs."""
    before, after = (_options(body or {}) for body in (change.before, change.after))
    watched, suspending = (tuple(of.get(name) for of in (before, after)) for name in ("--watch-keys", "--suspend-on"))
    if watched[0] != watched[1]:
        thresholds = ", ".join(f"{name} {value}" for name, value in json.loads(watched[1] or "{}").items())
        what = f"keys are watched: {thresholds}" if thresholds else "keys are not watched any more"
        yield verdict(change, Severity.LIVE, what, "a signal is an alert, and a row of sitectl key signals")
    most, never = (
        tuple(of.get(name) for of in (before, after)) for name in ("--most-suspended-per-hour", "--never-suspend")
    )
    if (suspending[0], most[0], never[0]) != (suspending[1], most[1], never[1]):
        what = "no signal suspends a key"
        if suspending[1]:
            what = f"{suspending[1]} suspend keys, at most {most[1]} an hour"
            what += f", and never {never[1]}" if never[1] else ""
        yield verdict(change, Severity.LIVE, what, "a suspended key is refused until a person lifts that")


def _options(body: Mapping[str, Any]) -> dict[str, str]:
    """Options of the pods' program, by name."""
    pod = ((body.get("spec") or {}).get("template") or {}).get("spec") or {}
    words = (word for container in pod.get("containers") or () for word in container.get("args") or ())
    return dict(word.split("=", 1) for word in words if "=" in word)


def is_pods(change: Change) -> bool:
    """Whether this Deployment decides about callers, or keeps their keys or usage."""
    return _name(change) in _PODS


def _name(change: Change) -> str:
    return str((change.body.get("metadata") or {}).get("name"))
