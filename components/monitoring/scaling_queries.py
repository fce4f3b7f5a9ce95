"""PromQL of what the cluster's autoscaler does, by autoscaler, as in `queries`."""

from __future__ import annotations

from components.monitoring import queries

_BY = ("horizontalpodautoscaler",)


def wanted_replicas() -> str:
    """Replicas that it wants of each model that scales."""
    return _replicas("status_desired")


def most_replicas() -> str:
    """The most that it may want."""
    return _replicas("spec_max")


def active() -> str:
    """1 where it gets metrics and sets the number."""
    where = f'{queries.IN_MODELS}, condition="ScalingActive", status="true"'
    return queries.total("kube_horizontalpodautoscaler_status_condition", where, by=_BY)


def _replicas(figure: str) -> str:
    return queries.total(f"kube_horizontalpodautoscaler_{figure}_replicas", queries.IN_MODELS, by=_BY)
