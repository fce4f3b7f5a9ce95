"""The name under which clients ask for a model, and the pool that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.gateway.traffic_policies import target_route, traffic_policy
from components.models.ranking import ranking_backend, servers_service
from floor.headers import MODEL_HEADER, REVISION_HEADER
from floor.metadata import DELETED_IN_BACKGROUND


def ai_gateway_route(
    name: str,
    namespace: str,
    *,
    model: str,
    gateway: str,
    gateway_namespace: str,
    request_timeout_s: int,
    owned_by: str,
    ranks: bool = False,
) -> dict[str, Any]:
    """One AIGatewayRoute for one revision of a model.

    name, model: of the revision, and what clients call it. Where these differ, a request has to be for the revision,
    too: of routes that match, the one with more headers wins.
    ranks: it leads to the model's ranking_backend instead of its pool.
    owned_by: shown in the model card of GET /v1/models.
    request_timeout_s: longest time from request to last token; the AI gateway's own default of 60 s cuts streams.
    """
    timeout = f"{request_timeout_s}s"
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool"}
    # Without group and kind it is an AIServiceBackend; the API server refuses both if they are written out.
    backend: dict[str, str] = {} if ranks else pool
    headers = {MODEL_HEADER: model, **({REVISION_HEADER: name} if name != model else {})}
    return {
        "apiVersion": "aigateway.envoyproxy.io/v1beta1",
        "kind": "AIGatewayRoute",
        "metadata": {"name": name, "namespace": namespace, "annotations": DELETED_IN_BACKGROUND},
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
                    "matches": [
                        {"headers": [{"type": "Exact", "name": key, "value": value} for key, value in headers.items()]}
                    ],
                    "backendRefs": [{**backend, "name": name}],
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
    settings = {
        # All else stays as the Gateway's own policy sets it.
        "mergeType": "StrategicMerge",
        "circuitBreaker": {
            "maxConnections": connections,
            "maxPendingRequests": requests,
            "maxParallelRequests": requests,
        },
    }
    # The AI gateway makes an HTTPRoute of the same name out of each of its routes.
    return traffic_policy("BackendTrafficPolicy", namespace, target_route(model), settings)


@dataclass(frozen=True, kw_only=True)
class ModelRouteArgs:
    """Where the route hangs and what it leads to."""

    model: str
    """What clients call it."""
    namespace: str
    gateway: str
    gateway_namespace: str
    request_timeout_s: int
    owned_by: str
    parallel_requests: int
    connections: int
    ranks: bool
    """Whether clients ask it to rank documents."""
    servers: Mapping[str, str]
    """Labels of its replicas."""
    port: int
    needs: Sequence[pulumi.Resource]
    """Authentication and the pool must be there before the route opens."""


class ModelRoute(Component, token="model_route:ModelRoute"):
    """The route of one revision of a model, and how much of it may be under way."""

    def __init__(self, name: str, args: ModelRouteArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        body = ai_gateway_route(
            name,
            args.namespace,
            model=args.model,
            gateway=args.gateway,
            gateway_namespace=args.gateway_namespace,
            request_timeout_s=args.request_timeout_s,
            owned_by=args.owned_by,
            ranks=args.ranks,
        )
        limit = parallel_limit(name, args.namespace, requests=args.parallel_requests, connections=args.connections)
        # Before the route, which is never open without its limit.
        limits = self.child("limits", limit, depends_on=args.needs)
        around = []
        if args.ranks:
            service = servers_service(name, args.namespace, selector=args.servers, port=args.port)
            backend, form = ranking_backend(name, args.namespace, port=args.port)
            named = self.child("servers", service, depends_on=args.needs)
            reached = self.child("backend", backend, depends_on=[named])
            around = [self.child("form", form, depends_on=[reached])]
        self.child("route", body, depends_on=[*args.needs, limits, *around])
        self.finish(name=name)
