"""What the lab asks of the two gateway charts, and the quota store beside them."""

from __future__ import annotations

from typing import Any

from lab.controllers.charts import Manifest, Release

ENVOY_GATEWAY_NAMESPACE = "envoy-gateway-system"
AI_GATEWAY_NAMESPACE = "envoy-ai-gateway-system"
QUOTA_STORE_NAMESPACE = "redis-system"
NAMESPACES = (ENVOY_GATEWAY_NAMESPACE, AI_GATEWAY_NAMESPACE, QUOTA_STORE_NAMESPACE)

AI_GATEWAY_CONTROLLER = "ai-gateway-controller"
_QUOTA_STORE = "redis"
_REDIS_PORT = 6379
_CLUSTER_DOMAIN = "cluster.local"

_POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED: dict[str, Any] = {
    **_POD_SECURITY,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
}

ENVOY_GATEWAY = Release(
    name="eg",
    chart="gateway-helm",
    namespace=ENVOY_GATEWAY_NAMESPACE,
    values={
        # The platform's program installs the CRDs.
        "crds": {"enabled": False},
        "deployment": {"envoyGateway": {"readinessProbe": {"periodSeconds": 2}}},
        "config": {
            "envoyGateway": {
                "extensionApis": {"enableBackend": True, "enableEnvoyPatchPolicy": True},
                "extensionManager": {
                    "backendResources": [
                        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "version": "v1"}
                    ],
                    "hooks": {
                        "xdsTranslator": {
                            "translation": {
                                kind: {"includeAll": True} for kind in ("listener", "route", "cluster", "secret")
                            },
                            "post": ["Translation", "Cluster", "Route"],
                        }
                    },
                    "service": {
                        "fqdn": {
                            "hostname": f"{AI_GATEWAY_CONTROLLER}.{AI_GATEWAY_NAMESPACE}.svc.{_CLUSTER_DOMAIN}",
                            "port": 1063,
                        }
                    },
                },
                "rateLimit": {
                    "backend": {
                        "type": "Redis",
                        "redis": {"url": f"{_QUOTA_STORE}.{QUOTA_STORE_NAMESPACE}.svc.{_CLUSTER_DOMAIN}:{_REDIS_PORT}"},
                    },
                    # A quota store that is down must not mean that there are no quotas.
                    "failClosed": True,
                },
            }
        },
    },
)

AI_GATEWAY = Release(
    name="aieg",
    chart="ai-gateway-helm",
    namespace=AI_GATEWAY_NAMESPACE,
    values={"controller": {"podSecurityContext": _POD_SECURITY, "securityContext": RESTRICTED}},
)


def namespace(name: str) -> Manifest:
    """A namespace that takes pods of the restricted profile alone."""
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": levels}}


def quota_store() -> list[Manifest]:
    """A Redis without persistence: in the lab a restart may forget what was used."""
    metadata = {"name": _QUOTA_STORE, "namespace": QUOTA_STORE_NAMESPACE, "labels": {"app": _QUOTA_STORE}}
    container = {
        "name": "redis",
        "image": "docker.io/library/redis:7.4",
        # Unprotected: it has no password, and only the rate limit service knows of it.
        "args": ["--port", str(_REDIS_PORT), "--protected-mode", "no", "--save", "", "--appendonly", "no"],
        "workingDir": "/tmp",  # noqa: S108
        "ports": [{"name": "redis", "containerPort": _REDIS_PORT}],
        "readinessProbe": {"tcpSocket": {"port": "redis"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": RESTRICTED,
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": {"app": _QUOTA_STORE},
                "ports": [{"name": "redis", "port": _REDIS_PORT, "targetPort": "redis"}],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": _QUOTA_STORE}},
                "template": {
                    "metadata": {"labels": {"app": _QUOTA_STORE}},
                    "spec": {
                        "automountServiceAccountToken": False,
                        "securityContext": _POD_SECURITY,
                        "containers": [container],
                    },
                },
            },
        },
    ]
