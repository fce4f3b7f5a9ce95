"""What is known of a site's callers before anyone asks: its tenants, and digests of the keys in its file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import pulumi

from components.component import Component
from components.namespace import NamespaceHandle
from components.specs.access import TenantSpec
from components.specs.adapters import AdapterGrant
from components.specs.callers import Canary, Dedicated, FillingPool, Overflow, SharedCache
from components.specs.limits import LIMITS, MOST_COUNTED, scope_of
from components.specs.tiers import TierSpec

_NAME = "callers"


def tenants_file(
    tenants: Mapping[str, TenantSpec],
    *,
    tiers: Mapping[str, TierSpec] = MappingProxyType({}),
    limits: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    bounds: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    budgets: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
    owners: Mapping[str, str] = MappingProxyType({}),
    contexts: Mapping[str, int] = MappingProxyType({}),
    canaries: Mapping[str, Canary] = MappingProxyType({}),
    dedicated: Mapping[str, Mapping[str, Dedicated]] = MappingProxyType({}),
    adapters: Mapping[str, AdapterGrant] = MappingProxyType({}),
    overflows: Mapping[str, Overflow] = MappingProxyType({}),
    pools: Mapping[str, FillingPool] = MappingProxyType({}),
    caches: Mapping[str, SharedCache] = MappingProxyType({}),
) -> str:
    """Everything about tenants but their keys, as JSON.

    limits, bounds, budgets: tenant -> key of each limit that it has -> most of it; those that Envoy has counted, those
    that the gatekeeper holds, and those of a month. names: what a model may be called -> the model. owners: model ->
    its `owned_by`. contexts: model -> tokens of a prompt with its answer. canaries: model -> its second revision.
    dedicated: tenant -> model -> its own replicas. adapters: those of the names that are adapters. overflows: model ->
    where its requests go while it is full or away. pools: each whose room is read -> its pickers. caches: revision ->
    its KV cache, of which tenants may hold shares.
    """
    units = {limit.key: limit.unit.upper() for limit in LIMITS}
    content = {
        "tenants": {
            name: {
                "models": sorted(spec.models),
                **({"tier": spec.tier} if spec.tier else {}),
                **({"bounds": dict(bounds[name])} if name in bounds else {}),
                **({"budgets": dict(budgets[name])} if name in budgets else {}),
                **({"shared": True} if spec.prefix_cache == "shared" else {}),
                **({"overflows": True} if spec.overflow == "accept" else {}),
                **(
                    {"dedicated": {model: asdict(own) for model, own in dedicated[name].items()}}
                    if name in dedicated
                    else {}
                ),
                "limits": {
                    limit: {"requests_per_unit": most, "unit": units[scope_of(limit)[2]]}
                    for limit, most in limits.get(name, {}).items()
                },
            }
            for name, spec in sorted(tenants.items())
        },
        # A rule that finds no limit of a tenant's own would fall back to the largest of any tenant.
        "unlimited": {key: {"requests_per_unit": MOST_COUNTED, "unit": unit} for key, unit in units.items()},
        "names": dict(names),
        "owners": dict(owners),
        "contexts": dict(contexts),
        "tiers": {name: tier.priority for name, tier in sorted(tiers.items())},
        **({"rooms": rooms} if (rooms := _rooms(tiers)) else {}),
        **({"canaries": {model: asdict(canary) for model, canary in canaries.items()}} if canaries else {}),
        **({"adapters": {name: asdict(grant) for name, grant in adapters.items()}} if adapters else {}),
        **({"overflows": {model: asdict(to) for model, to in overflows.items()}} if overflows else {}),
        **({"pools": {model: asdict(pool) for model, pool in pools.items()}} if pools else {}),
        **({"caches": {pool: asdict(cache) for pool, cache in caches.items()}} if caches else {}),
    }
    return json.dumps(content, sort_keys=True)


def _rooms(tiers: Mapping[str, TierSpec]) -> dict[str, float]:
    return {name: tier.admitted_below for name, tier in sorted(tiers.items()) if tier.admitted_below < 1}


def keys_file(digests: Mapping[str, str]) -> str:
    """digests: client id -> SHA-256 of its key, hexadecimal."""
    keys = []
    for client, digest in sorted(digests.items()):
        tenant, _, name = client.partition(".")
        keys.append({"tenant": tenant, "name": name, "digest": digest})
    return json.dumps({"keys": keys})


def digest_of(key: str) -> str:
    """What the gatekeeper knows a key of the site's file by: it has 256 random bits, which no one finds again."""
    return hashlib.sha256(key.encode()).hexdigest()


def mounted(namespace: str, what: str, data: Mapping[str, Any], *, secret: bool = False) -> dict[str, Any]:
    """What pods read, under one name for good: an `up` that is killed leaves no second object to delete."""
    return {
        "apiVersion": "v1",
        "kind": "Secret" if secret else "ConfigMap",
        "metadata": {"name": f"{_NAME}-{what}", "namespace": namespace},
        **({"type": "Opaque", "stringData": dict(data)} if secret else {"data": dict(data)}),
    }


def version_of(text: str) -> str:
    """A short digest, by which pods are replaced for another text."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True, kw_only=True)
class CallersArgs:
    """Tenants, and what is known of their keys."""

    tenants: str
    """As `tenants_file` gives it."""
    digests: Mapping[str, pulumi.Input[str]]
    """Client id -> SHA-256 of a key."""
    keys: str
    """Another text when any of these keys is another."""
    namespace: NamespaceHandle
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class CallersHandle:
    """Objects that pods mount, once `ready` is there."""

    tenants: str
    """ConfigMap with `tenants.json`."""
    keys: str
    """Secret with `keys.json`."""
    versions: Mapping[str, str]
    """Of each, by what it has: pods that mount it have this in an annotation, and are replaced for another one."""
    ready: Sequence[pulumi.Resource]


class Callers(Component, token="callers:Callers"):
    """A ConfigMap and a Secret, however many tenants there are."""

    def __init__(self, name: str, args: CallersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        needs = [args.namespace.ready, *args.needs]
        tenants = mounted(args.namespace.name, "tenants", {"tenants.json": args.tenants})
        made = pulumi.Output.all(**args.digests).apply(keys_file) if args.digests else keys_file({})
        content = {"keys.json": pulumi.Output.secret(made)}
        keys = mounted(args.namespace.name, "keys", content, secret=True)
        self.handle = CallersHandle(
            tenants=tenants["metadata"]["name"],
            keys=keys["metadata"]["name"],
            versions={"tenants": version_of(args.tenants), "keys": version_of(args.keys)},
            ready=[
                self.child("tenants", tenants, depends_on=needs),
                self.child("keys", keys, depends_on=needs),
            ],
        )
        self.finish(tenants=self.handle.tenants)
