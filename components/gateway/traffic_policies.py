"""What clients may send through the Gateway, and what it grants the engines behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.gateway.traces import FOREIGN_HEADERS
from components.specs.gateway import GatewaySpec
from floor.headers import TRUSTED_HEADERS
from floor.metadata import PROTECTED

GATEWAY = "inference"
_EG = "gateway.envoyproxy.io"
_GW = "gateway.networking.k8s.io"
# What Envoy may hold of a message: an unstreamed answer with log probabilities outgrows any prompt.
_BUFFER = "64Mi"


def client_traffic_policy(namespace: str, spec: GatewaySpec) -> dict[str, Any]:
    """What clients may send: large bodies, long silent prefills, and none of the headers that we trust inside."""
    settings = {
        "connection": {"bufferLimit": _BUFFER},
        # Envoy Gateway's default is a redirect, before the key check.
        "path": {"escapedSlashesAction": "KeepUnchanged"},
        # Envoy would close the connection of an old tool without an error.
        "http1": {"http10": {}},
        "http2": {
            # A window below the body's size makes Envoy answer 413 to HTTP/2 clients.
            "initialStreamWindowSize": "16Mi",
            "initialConnectionWindowSize": "24Mi",
            # Envoy Gateway's default of 100 is below what one agent's connection carries.
            "maxConcurrentStreams": 1000,
            # Envoy Gateway's own ends all of a connection's streams for one request that breaks HTTP.
            "onInvalidMessage": "TerminateStream",
        },
        "timeout": {
            "http": {
                "requestReceivedTimeout": "120s",
                "idleTimeout": "3600s",
                "streamIdleTimeout": f"{spec.stream_idle_timeout_s}s",
            }
        },
        "headers": {
            "earlyRequestHeaders": {"remove": [*TRUSTED_HEADERS, *(FOREIGN_HEADERS if spec.traces else ())]},
            # Some engine might take one for the header with dashes in its place.
            "withUnderscoresAction": "DropHeader",
        },
    }
    return traffic_policy("ClientTrafficPolicy", namespace, target_gateway(), settings, PROTECTED)


def backend_traffic_policy(
    namespace: str, spec: GatewaySpec, *, body_kib: int, rate_limit: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What Envoy grants the engines: as many parallel requests as the front takes, and time for a silent prefill.

    body_kib: largest request body; the next larger one is answered 413. rate_limit: what limits tenants; None where
    none has a limit.
    """
    settings = {
        "connection": {"bufferLimit": _BUFFER},
        "requestBuffer": {"limit": f"{body_kib}Ki"},
        "circuitBreaker": {
            "maxConnections": spec.max_parallel_streams,
            "maxPendingRequests": spec.max_parallel_streams,
            "maxParallelRequests": spec.max_parallel_streams,
        },
        "timeout": {
            "tcp": {"connectTimeout": "10s"},
            "http": {
                "connectionIdleTimeout": "3600s",
                "streamIdleTimeout": f"{spec.stream_idle_timeout_s}s",
            },
        },
        **({"rateLimit": dict(rate_limit)} if rate_limit else {}),
    }
    return traffic_policy("BackendTrafficPolicy", namespace, target_gateway(), settings)


def traffic_policy(
    kind: str,
    namespace: str,
    target: Mapping[str, str],
    settings: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A policy with the name of what it attaches to."""
    named = {"name": target["name"], "namespace": namespace, **({"labels": labels} if labels else {})}
    spec = {"targetRefs": [dict(target)], **settings}
    return {"apiVersion": f"{_EG}/v1alpha1", "kind": kind, "metadata": named, "spec": spec}


def target_gateway(name: str = GATEWAY) -> dict[str, str]:
    """Reference by which a policy attaches to a Gateway, that of the models if not named."""
    return {"group": _GW, "kind": "Gateway", "name": name}


def target_route(name: str) -> dict[str, str]:
    """The same of an HTTPRoute."""
    return {"group": _GW, "kind": "HTTPRoute", "name": name}
