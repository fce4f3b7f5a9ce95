"""The way to a model that ranks documents: around its pool, which the AI gateway would ask for answers alone.

The AI gateway v1.0.0 takes an InferencePool for an OpenAI backend (internal/controller/gateway.go), and OpenAI has no
request to rank. So its requests go to a backend of Cohere's form, which vLLM serves at /v2/rerank, over the addresses
of all replicas that are ready. No picker is asked: a request leaves nothing in a cache that the next one could use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floor.metadata import DELETED_IN_BACKGROUND

_PORT_NAME = "http"


def servers_name(model: str) -> str:
    """Of the Service that has the addresses of a model's replicas."""
    return f"{model}-servers"


def servers_service(model: str, namespace: str, *, selector: Mapping[str, str], port: int) -> dict[str, Any]:
    """A name for all replicas that are ready, without an address of its own: so Envoy balances over them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": servers_name(model),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/instance": model},
        },
        "spec": {
            "clusterIP": "None",
            "selector": dict(selector),
            "ports": [{"name": _PORT_NAME, "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }


def ranking_backend(model: str, namespace: str, *, port: int) -> list[dict[str, Any]]:
    """Envoy Gateway's backend, and the AI gateway's, which states its form."""
    meta = {"name": model, "namespace": namespace}
    host = f"{servers_name(model)}.{namespace}.svc"
    backend = {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": model}
    return [
        {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "Backend",
            "metadata": meta,
            "spec": {"endpoints": [{"fqdn": {"hostname": host, "port": port}}]},
        },
        {
            "apiVersion": "aigateway.envoyproxy.io/v1beta1",
            "kind": "AIServiceBackend",
            "metadata": {**meta, "annotations": DELETED_IN_BACKGROUND},
            "spec": {"schema": {"name": "Cohere", "version": "v2"}, "backendRef": backend},
        },
    ]
