"""The name under which clients ask for a model, and the pool that answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from floor.headers import MODEL_HEADER


def ai_gateway_route(
    model: str, namespace: str, *, gateway: str, gateway_namespace: str, request_timeout_s: int, owned_by: str
) -> dict[str, Any]:
    """One AIGatewayRoute for one model.

    owned_by: shown in the model card of GET /v1/models.
    request_timeout_s: longest time from request to last token; the AI gateway's own default of 60 s cuts streams.
    """
    timeout = f"{request_timeout_s}s"
    return {
        "apiVersion": "aigateway.envoyproxy.io/v1beta1",
        "kind": "AIGatewayRoute",
        "metadata": {"name": model, "namespace": namespace},
        "spec": {
            "parentRefs": [
                {
                    "group": "gateway.networking.k8s.io",
                    "kind": "Gateway",
                    "name": gateway,
                    "namespace": gateway_namespace,
                }
            ],
            "rules": [
                {
                    "matches": [{"headers": [{"type": "Exact", "name": MODEL_HEADER, "value": model}]}],
                    "backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": model}],
                    "timeouts": {"request": timeout, "backendRequest": timeout},
                    "modelsOwnedBy": owned_by,
                }
            ],
        },
    }


def parallel_limit(model: str, namespace: str, *, requests: int, connections: int) -> dict[str, Any]:
    """BackendTrafficPolicy that lets one Envoy pod have so many requests for the model under way, and no more.

    requests: the next one is refused at once (503), instead of queueing where its client would give up.
    connections: well above, because replicas that are idle keep theirs open. Every limit is named, since the API
    server sets 1,024 for one that is not, and that would win over the Gateway's.
    """
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "BackendTrafficPolicy",
        "metadata": {"name": model, "namespace": namespace},
        "spec": {
            # The AI gateway makes an HTTPRoute of the same name out of each of its routes.
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": model}],
            # All else stays as the Gateway's own policy sets it.
            "mergeType": "StrategicMerge",
            "circuitBreaker": {
                "maxConnections": connections,
                "maxPendingRequests": requests,
                "maxParallelRequests": requests,
            },
        },
    }


@dataclass(frozen=True, kw_only=True)
class ModelRouteArgs:
    """Where the route hangs and what it leads to."""

    namespace: str
    gateway: str
    gateway_namespace: str
    request_timeout_s: int
    owned_by: str
    parallel_requests: int
    connections: int
    needs: Sequence[pulumi.Resource]
    """Authentication and the pool must be there before the route opens."""


class ModelRoute(Component):
    """The route of one model, and how much of it may be under way."""

    def __init__(self, name: str, args: ModelRouteArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        body = ai_gateway_route(
            name,
            args.namespace,
            gateway=args.gateway,
            gateway_namespace=args.gateway_namespace,
            request_timeout_s=args.request_timeout_s,
            owned_by=args.owned_by,
        )
        limit = parallel_limit(name, args.namespace, requests=args.parallel_requests, connections=args.connections)
        # Before the route, which is never open without its limit.
        limits = self.child("limits", limit, depends_on=args.needs)
        self.child("route", body, depends_on=[*args.needs, limits])
        self.finish(name=name)
