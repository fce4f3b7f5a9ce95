"""What a site may set for what scales its models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from floor import namespaces
from floor.spec import Spec

AutoscalingSystem = Literal["keda", "external"]


class AutoscalingSpec(Spec):
    """What scales models with `server.scaling`."""

    system: AutoscalingSystem = "keda"
    """`keda`: this program installs KEDA once a model scales; `external`: the cluster has KEDA 2.17 or later already. A
    cluster has one: a second one cannot answer for external metrics."""
    namespace: str = Field(default=namespaces.AUTOSCALING, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """Namespace of the cluster's KEDA, whose operator may ask the program's Prometheus; with `system: external`."""
    prometheus: str | None = Field(
        default=None, pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$"
    )
    """Address of the cluster's Prometheus, as KEDA's operator reaches it without a login, such as
    `http://prometheus-operated.monitoring:9090`; required for `server.scaling` with `monitoring.system: external`."""
