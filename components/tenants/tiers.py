"""Whose requests are served while a model has no room for all: a tier per tenant, and its priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.namespace import NamespaceHandle
from components.specs.tiers import TierSpec
from components.tenants.limit_scripts import limits_script, metered_script, streams_script
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER

_OBJECTIVE_API = "inference.networking.x-k8s.io/v1alpha2"
_POOL_API = "inference.networking.k8s.io"

# No name of a site is in here: the tenants' tiers come as data, so no name can become code, and the code never changes.
_NAME_THE_OBJECTIVE = f"""\
function envoy_on_request(request)
  local headers = request:headers()
  local client, model = headers:get("{CLIENT_HEADER}"), headers:get("{MODEL_HEADER}")
  if client == nil or model == nil then
    return
  end
  local tenant = string.match(client, "^[^.]+")
  local tier = tenant and request:filterContext():get(tenant)
  if tier then
    headers:replace("{OBJECTIVE_HEADER}", tier .. "." .. model)
  end
end
"""


def objective_name(tier: str, model: str) -> str:
    """Name of a tier's objective for one model, which the requests carry. Names of a site have no dot."""
    return f"{tier}.{model}"


def inference_objective(tier: str, spec: TierSpec, model: str, namespace: str) -> dict[str, Any]:
    """The tier's priority, as the picker of one model reads it: a picker knows the objectives of its own pool alone."""
    return {
        "apiVersion": _OBJECTIVE_API,
        "kind": "InferenceObjective",
        "metadata": {
            "name": objective_name(tier, model),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/instance": model},
        },
        "spec": {
            "poolRef": {"group": _POOL_API, "kind": "InferencePool", "name": model},
            "priority": spec.priority,
        },
    }


def tiers_script(tier_of: Mapping[str, str]) -> dict[str, Any]:
    """Script that names each request's objective, out of the client and the model that are known by then.

    tier_of: tenant -> tier, of the tenants that have one.
    """
    return {"type": "Inline", "inline": _NAME_THE_OBJECTIVE, "filterContext": dict(sorted(tier_of.items()))}


def caller_policy(namespace: str, gateway: Mapping[str, str], scripts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """EnvoyExtensionPolicy of the scripts that hand on what a request's tenant has: its tier, its limits.

    Envoy Gateway writes the script into the listener and `filterContext` into each route. So the first tier of a site,
    and the last one that goes, replace the listener, whose streams have its drain time; another tier of a tenant
    changes routes alone, and cuts nothing. Envoy Gateway answers 500 everywhere if it runs without `enableLua`.
    """
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyExtensionPolicy",
        "metadata": {"name": "tiers", "namespace": namespace},
        "spec": {"targetRefs": [dict(gateway)], "lua": [dict(script) for script in scripts]},
    }


@dataclass(frozen=True, kw_only=True)
class TiersArgs:
    """Tiers by name, who is in which, the pools whose pickers know them, and tenants' limits."""

    tiers: Mapping[str, TierSpec]
    tier_of: Mapping[str, str]
    """Tenant -> tier, of the tenants that have one."""
    limits: Mapping[str, Mapping[str, int]]
    """Tenant -> key of each limit that it has -> most of it."""
    by_scripts: bool
    """Whether scripts name each request's tier and limits; else a gatekeeper does."""
    metered: bool = False
    """Whether a ledger gets what streams used that their clients left."""
    pools: Sequence[str]
    namespace: NamespaceHandle
    """Of the gateway."""
    target: dict[str, str]
    models_namespace: NamespaceHandle
    needs: list[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class TiersHandle:
    """Priorities and limits in force once every one of `ready` is there."""

    ready: list[pulumi.Resource]


class Tiers(Component, token="tiers:Tiers"):
    """An objective for each tier and pool, and the policy that names one, and its tenant's limits, on each request."""

    def __init__(self, name: str, args: TiersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        objectives = [
            self.child(
                objective_name(tier, pool),
                inference_objective(tier, spec, pool, args.models_namespace.name),
                depends_on=[args.models_namespace.ready, *args.needs],
            )
            for tier, spec in sorted(args.tiers.items())
            for pool in sorted(args.pools)
        ]
        ready: list[pulumi.Resource] = [*objectives]
        if scripts := self._scripts(args):
            policy = caller_policy(args.namespace.name, args.target, scripts)
            # An objective that a picker does not know has priority 0.
            ready = [self.child("policy", policy, depends_on=[args.namespace.ready, *objectives, *args.needs])]
        self.handle = TiersHandle(ready=ready)
        self.finish(tiers=sorted(args.tiers))

    @staticmethod
    def _scripts(args: TiersArgs) -> list[dict[str, Any]]:
        limited = bool(args.limits)
        if not args.by_scripts:
            return [streams_script(limited=limited, metered=args.metered)] if limited or args.metered else []
        scripts = [tiers_script(args.tier_of)] if args.tiers else []
        if limited:
            return [*scripts, limits_script(args.limits, metered=args.metered)]
        return [*scripts, *([metered_script()] if args.metered else [])]
