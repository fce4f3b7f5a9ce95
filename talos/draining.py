"""Which pods of a node are moved rather than evicted: an eviction ends a pod before its successor has started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SUCCESSOR_FIRST = {"inference-platform/on-drain": "successor-first"}
"""Label of pods whose Deployment can start a successor before they end (maxUnavailable 0)."""


def movable(pods: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Namespace and name of the Deployments whose pods are among these and not being deleted, each once, in order."""
    deployments = set()
    for pod in pods:
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            continue
        # A ReplicaSet of a Deployment is called like it, with the hash of the template behind.
        end = f"-{meta.get('labels', {}).get('pod-template-hash', '')}"
        for owner in meta.get("ownerReferences") or ():
            if owner["kind"] == "ReplicaSet" and len(end) > 1 and owner["name"].endswith(end):
                deployments.add((meta["namespace"], owner["name"].removesuffix(end)))
    return sorted(deployments)
