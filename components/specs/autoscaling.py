"""What a site may set for models whose number of replicas follows their load, and the figures that it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from floor import namespaces
from floor.spec import Spec

AutoscalingSystem = Literal["keda", "external"]


class AutoscalingSpec(Spec):
    """What changes the number of replicas of models whose `server.replicas` is a range."""

    system: AutoscalingSystem = "keda"
    """`keda`: this program installs KEDA once a model has a range; `external`: the cluster has KEDA 2.17 or later
    already. A cluster has one: a second one cannot answer for external metrics."""
    namespace: str = namespaces.AUTOSCALING
    """Namespace of the cluster's KEDA; with `system: external`. Its operator may ask the program's Prometheus."""
    prometheus: str | None = None
    """Address of the cluster's Prometheus, as KEDA's operator reaches it, without a login; required with a range and
    `monitoring.system: external`."""


@dataclass(frozen=True, kw_only=True)
class ScalingPlan:
    """Between which numbers of replicas a model is scaled, and by what."""

    least: int
    most: int
    requests: int
    """That a replica runs or keeps waiting when another one is due."""
    kv_share: float
    """Of a replica's cache that is in use when another one is due, 0 to 1."""
    window_s: int
    """A replica goes only when fewer were enough for so long."""
    prometheus: str
    """Address of the Prometheus that measures the replicas."""
