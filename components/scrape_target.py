"""What is measured: which pods, at which port, under which labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

POD_META = "__meta_kubernetes_pod"
Relabeling = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ScrapeTarget:
    """Pods of one kind."""

    name: str
    """Of the monitor."""
    job: str
    """Value of the label `job`; several monitors may share one."""
    namespace: str | None
    """None where it is not known; the labels then find the pods in any namespace."""
    pods: Mapping[str, str]
    """Labels of the pods."""
    port: int
    """A port that a container of the pod declares."""
    path: str = "/metrics"
    labels: Sequence[Relabeling] = ()
    """Labels that the target gets."""
    sample_labels: Sequence[Relabeling] = ()
    """Labels that its samples get, and samples that are dropped."""
    own_labels_win: bool = False
    """Whether a sample's own `pod`, `namespace` or `node` stays, where the target has one of that name."""


def label_from(source: str, label: str) -> Relabeling:
    """The target gets this label with the value of that one."""
    return {"action": "replace", "sourceLabels": [source], "targetLabel": label}


NODE_LABEL = label_from(f"{POD_META}_node_name", "node")
"""The label `node`, for what runs once on each."""
