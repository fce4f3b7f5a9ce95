"""A model's weights on each node's own disk: the folder as a volume, and the DaemonSet that fills it once per node."""

from __future__ import annotations

from typing import Any

from components.models.weights import WeightsPlan, job, labels, runs, writing_pod
from components.specs.weights import NODE_CLASS
from floor import gpu_nodes
from floor.metadata import DISPOSABLE

# Kubernetes compares the sizes of volume and claim, and limits no pod by them; such a claim can never grow.
_SIZE = "1Gi"
# As in KServe's local model cache. Nothing attaches local volumes, so pods of all nodes mount theirs.
_MODES = ["ReadWriteOnce"]
_SELECTED = {"app.kubernetes.io/component": "node"}


def volume(namespace: str, plan: WeightsPlan) -> dict[str, Any]:
    """The folder of all models, as a volume that only this model's claim takes; on each node it is that node's."""
    near_gpus = {"key": gpu_nodes.FAMILY_LABEL, "operator": "Exists"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _volume_name(namespace, plan), "labels": labels(plan.order.model)},
        "spec": {
            "capacity": {"storage": _SIZE},
            "accessModes": _MODES,
            "volumeMode": "Filesystem",
            "storageClassName": NODE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": plan.claim,
            },
            "local": {"path": plan.node_path},
            # All GPU nodes, because a volume's fields cannot change; a pod's own selector chooses among them.
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [near_gpus]}]}},
        },
    }


def claim(namespace: str, plan: WeightsPlan) -> dict[str, Any]:
    """The claim on that volume. The files stay on the nodes without it; the volume then takes no other claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": plan.claim,
            "namespace": namespace,
            "labels": labels(plan.order.model),
            "annotations": {DISPOSABLE: "true"},
        },
        "spec": {
            "accessModes": _MODES,
            "storageClassName": NODE_CLASS,
            "volumeName": _volume_name(namespace, plan),
            "resources": {"requests": {"storage": _SIZE}},
        },
    }


def first_job(name: str, namespace: str, plan: WeightsPlan, gpu_family: str) -> dict[str, Any]:
    """The Job that fills one node, of those where a server may run: another has no room for it, and no use."""
    body = job(name, namespace, plan)
    pod = body["spec"]["template"]["spec"]
    del pod["affinity"]
    pod["nodeSelector"] = _where_servers_run(gpu_family)
    return body


def daemon_set(name: str, namespace: str, plan: WeightsPlan, gpu_family: str) -> dict[str, Any]:
    """On each node where a server may run: a container that brings what is wanted, then one that holds the pod.

    So a node that joins later is filled by itself.
    """
    pod = writing_pod(name, plan, "bring")
    (bring,) = pod.pop("containers")
    del pod["affinity"]
    # Kubernetes reserves an init container's requests for as long as the pod lives.
    small = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    hold = {
        **runs(plan, "hold"),
        "name": "hold",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [mount for mount in bring["volumeMounts"] if mount["name"] == "weights-program"],
    }
    selected = {**labels(name), **_SELECTED}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": plan.daemon_set, "namespace": namespace, "labels": selected},
        "spec": {
            "selector": {"matchLabels": selected},
            # All nodes at once: a pod that is away stops no server.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": selected},
                "spec": {
                    **pod,
                    "nodeSelector": _where_servers_run(gpu_family),
                    "initContainers": [{**bring, "name": "bring", "resources": small}],
                    "containers": [hold],
                },
            },
        },
    }


def _where_servers_run(gpu_family: str) -> dict[str, str]:
    return {gpu_nodes.FAMILY_LABEL: gpu_family}


def _volume_name(namespace: str, plan: WeightsPlan) -> str:
    return f"{namespace}-{plan.claim}"
