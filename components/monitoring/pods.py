"""What the pods of this namespace have in common: the strictest pod security, and Deployments of one pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.pod_security import CONTAINER_SECURITY, pod_security

NAME_LABEL = "app.kubernetes.io/name"
# No account of the images' own: every one of these programs runs as any user.
_USER = 65534
POD_SECURITY: Mapping[str, Any] = pod_security(_USER)


def deployment(
    name: str,
    namespace: str,
    *,
    image: str,
    args: Sequence[str],
    ports: Mapping[str, int],
    ready: tuple[str, str],
    alive: tuple[str, str],
    resources: Mapping[str, Any],
) -> dict[str, Any]:
    """One pod that keeps nothing, under the account of the same name.

    ready, alive: path and port's name of what shows that it serves, and that it runs.
    """
    labels = {NAME_LABEL: name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": name,
                    "enableServiceLinks": False,
                    "securityContext": dict(POD_SECURITY),
                    "containers": [
                        {
                            "name": name,
                            "image": image,
                            "args": list(args),
                            "ports": [
                                {"name": port, "containerPort": number, "protocol": "TCP"}
                                for port, number in ports.items()
                            ],
                            "readinessProbe": _asked(*ready),
                            "livenessProbe": {**_asked(*alive), "periodSeconds": 10, "failureThreshold": 6},
                            "resources": dict(resources),
                            "securityContext": dict(CONTAINER_SECURITY),
                        }
                    ],
                },
            },
        },
    }


def release_of(image: str) -> str:
    """The tag of an image, by which the operator knows the flags and settings of what runs in it."""
    return image.partition("@")[0].rpartition(":")[2]


def _asked(path: str, port: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 2, "timeoutSeconds": 5}


def volume_claim(storage_class: str, gib: int) -> dict[str, Any]:
    """Fields of one of the operator's servers with a volume; its claim is deleted with the namespace alone.

    For another size or class the operator deletes the StatefulSet and makes it again (release 0.85,
    pkg/prometheus/server/operator.go and pkg/alertmanager/operator.go), and the new one takes the claim that is there.
    """
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": f"{gib}Gi"}},
    }
    return {
        "storage": {"volumeClaimTemplate": {"spec": claim}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }


def apart(labels: Mapping[str, str], copies: int) -> dict[str, Any]:
    """Fields of one of the operator's servers with so many pods, on nodes of their own where there are as many."""
    if copies == 1:
        return {"replicas": 1}
    elsewhere = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": elsewhere}]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return {"replicas": copies, "affinity": affinity}
