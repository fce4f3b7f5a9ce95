"""Two pods of a small service of the platform's own, of which one is always ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.placing import spread
from components.pod_security import CONTAINER_SECURITY, pod_security

_USER = 65532
_REPLICAS = 2


@dataclass(frozen=True, kw_only=True)
class ServicePods:
    """What is in them; health is asked by HTTP, at `/healthz` and `/readyz`."""

    name: str
    image: str
    arguments: Sequence[pulumi.Input[str]]
    ports: Mapping[str, int]
    asked: str
    """The port for health."""
    ready: Mapping[str, Any]
    """How readiness is asked, beside what."""
    memory: str
    volumes: Mapping[str, Mapping[str, Any]]
    """Path -> volume; an `emptyDir` is there to be written."""
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a pod."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str]
    """Of what they read when they start: for another one they are replaced, one after the other."""

    @property
    def labels(self) -> dict[str, str]:
        """Of the pods."""
        return {"app.kubernetes.io/name": self.name}


def service(namespace: str, name: str, port: int) -> dict[str, Any]:
    """Their Service, at the port that they call `http`; nothing waits until a pod of it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "selector": {"app.kubernetes.io/name": name},
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    }


def opaque_secret(namespace: str, name: str, values: Mapping[str, pulumi.Input[str]]) -> dict[str, Any]:
    """What they mount and others must not read. values: each of its keys -> its text."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "stringData": dict(values),
    }


def two_pods(namespace: str, pods: ServicePods) -> dict[str, Any]:
    """Their Deployment. A successor is ready before one ends."""
    container = {
        "name": pods.name,
        "image": pods.image,
        "args": list(pods.arguments),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in pods.ports.items()],
        "readinessProbe": dict(pods.ready) | {"httpGet": {"path": "/readyz", "port": pods.asked}},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": pods.asked},
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "resources": {"requests": {"cpu": "100m", "memory": pods.memory}, "limits": {"memory": "512Mi"}},
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [
            {"name": volume["name"], "mountPath": path, **({} if "emptyDir" in volume else {"readOnly": True})}
            for path, volume in pods.volumes.items()
        ],
        **(
            {"env": [{"name": name, "value": value} for name, value in pods.variables.items()]}
            if pods.variables
            else {}
        ),
    }
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": pod_security(_USER),
        "containers": [container],
        "volumes": [dict(volume) for volume in pods.volumes.values()],
        **pods.settings,
        **spread(pods.labels),
    }
    annotated = {"annotations": dict(pods.annotations)} if pods.annotations else {}
    versions = {f"inference-platform/{what}": version for what, version in pods.versions.items()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": pods.name, "namespace": namespace, "labels": pods.labels, **annotated},
        "spec": {
            "replicas": _REPLICAS,
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": pods.labels},
            "template": {"metadata": {"labels": pods.labels, "annotations": versions}, "spec": pod},
        },
    }
