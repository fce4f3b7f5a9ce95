"""Which pods of a node are moved rather than evicted, and which evictions would wait for pods elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SUCCESSOR_FIRST = {"inference-platform/on-drain": "successor-first"}
"""Label of pods whose Deployment can start a successor before they end (maxUnavailable 0)."""


def short_budgets(budgets: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Namespace, name and selector of the PodDisruptionBudgets that allow no eviction, as a pod of theirs is unwell."""
    short = []
    for budget in budgets:
        meta, state = budget["metadata"], budget.get("status") or {}
        wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
        unwell = state.get("currentHealthy", 0) < state.get("expectedPods", 0)
        if wanted and unwell and not state.get("disruptionsAllowed"):
            selector = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
            short.append((meta["namespace"], meta["name"], selector))
    return sorted(short)


def waits_for_others(pods: Iterable[Mapping[str, Any]], node: str) -> bool:
    """Whether a budget of these pods holds one on the node until one elsewhere is Ready, such as a replica that loads.

    A pod of the node that is unwell itself does not wait.
    """
    ready = [(pod["spec"].get("nodeName"), _is_ready(pod)) for pod in pods]
    return (node, True) in ready and any(where != node and not is_ready for where, is_ready in ready)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


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
