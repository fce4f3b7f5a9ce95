"""Objects of a cluster as kubectl shows them: what a drain looks at."""

from __future__ import annotations

from typing import Any

from talos.draining import SUCCESSOR_FIRST


def picker(node: str) -> dict[str, Any]:
    """A pod of Deployment glm-epp, as Kubernetes names them."""
    labels = {**SUCCESSOR_FIRST, "pod-template-hash": "5c5fbcf699"}
    owner = {"kind": "ReplicaSet", "name": "glm-epp-5c5fbcf699"}
    meta = {"name": "glm-epp-5c5fbcf699-x", "namespace": "models", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"nodeName": node}}


def volume(claim: str, robustness: str) -> dict[str, Any]:
    """One of Longhorn's, as it reports on it."""
    bound = {"namespace": "inference-models", "pvcName": claim}
    return {"metadata": {"name": "pvc-1"}, "status": {"robustness": robustness, "kubernetesStatus": bound}}


def replica(node: str, ready: str) -> dict[str, Any]:
    meta = {"name": f"glm-{node}", "namespace": "models", "labels": {"app": "glm"}}
    return {
        "metadata": meta,
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def budget(healthy: int) -> dict[str, Any]:
    """Of two replicas, of which one may be away."""
    state = {"expectedPods": 2, "currentHealthy": healthy, "disruptionsAllowed": healthy - 1}
    spec = {"selector": {"matchLabels": {"app": "glm"}}}
    return {"metadata": {"name": "glm", "namespace": "models"}, "spec": spec, "status": state}
