"""On which nodes pods run: those that can mount their volume, as many of them as there are, and one drain at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Placing:
    """On which nodes pods with volumes run."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]


ANYWHERE = Placing(node_selector={}, tolerations=())
"""On nodes without a taint."""


def placed(placing: Placing) -> dict[str, Any]:
    """Fields of a pod that may run on these nodes alone."""
    return {
        **({"nodeSelector": dict(placing.node_selector)} if placing.node_selector else {}),
        **({"tolerations": [dict(entry) for entry in placing.tolerations]} if placing.tolerations else {}),
    }


def spread(labels: Mapping[str, str], skew: int = 1) -> dict[str, Any]:
    """Field of a pod that keeps those with these labels on different nodes, as far as there are any.

    skew: how many more of them one node may have than another.
    """
    constraint = {
        "maxSkew": skew,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }
    return {"topologySpreadConstraints": [constraint]}


def budget(name: str, namespace: str, labels: Mapping[str, str], *, max_unavailable: int = 1) -> dict[str, Any]:
    """PodDisruptionBudget by which a node drain takes so many of several pods at a time.

    A pod that serves nothing takes nothing away as it goes: by default Kubernetes would refuse to evict it while too
    many others are not ready either, and its node could not be drained.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "maxUnavailable": max_unavailable,
            "selector": {"matchLabels": dict(labels)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
