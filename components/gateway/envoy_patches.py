"""Patches of the configuration that Envoy Gateway makes for Envoy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from components.gateway.envoy_names import ROUTER_FILTER

_CONFIG = "type.googleapis.com/envoy.config"
LISTENER = f"{_CONFIG}.listener.v3.Listener"
ROUTES = f"{_CONFIG}.route.v3.RouteConfiguration"
CLUSTER = f"{_CONFIG}.cluster.v3.Cluster"


def patch_policy(
    name: str,
    namespace: str,
    gateway: Mapping[str, str],
    patches: Sequence[Mapping[str, Any]],
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    priority: int = 0,
) -> dict[str, Any]:
    """EnvoyPatchPolicy of one Gateway. priority: those with a lower one patch first."""
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyPatchPolicy",
        "metadata": {"name": name, "namespace": namespace, **({"labels": dict(labels)} if labels else {})},
        "spec": {
            "targetRef": dict(gateway),
            "type": "JSONPatch",
            **({"priority": priority} if priority else {}),
            "jsonPatches": [dict(patch) for patch in patches],
        },
    }


def patch(kind: str, name: str, **operation: Any) -> dict[str, Any]:
    """One patch. kind: LISTENER, ROUTES or CLUSTER; operation: op, path or jsonPath, value."""
    return {"type": kind, "name": name, "operation": operation}


def where_filter(name: str) -> str:
    """JSONPath of a listener's HTTP filter; what is added there comes right before it."""
    return f'$..http_filters[?(@.name=="{name}")]'


BEFORE_ROUTING = where_filter(ROUTER_FILTER)
