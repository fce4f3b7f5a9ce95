"""Alerts about models whose number of replicas follows their load."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

# A restart of Prometheus is no alert.
_MINUTES = 10
# A peak of the day is no lack of replicas.
_LONG_MINUTES = 240


def autoscaling() -> list[Alert]:
    """The number of replicas stays as it is meanwhile: what is missed is the load that comes."""
    failed = queries.growth(
        "keda_scaler_detail_errors_total", queries.AUTOSCALING, by=("namespace", "scaledObject"), window="5m"
    )
    return [
        Alert(
            name="AutoscalingBlind",
            severity="ticket",
            expression=f"{failed} > 0",
            minutes=_MINUTES,
            summary="KEDA cannot read the load of {{ $labels.scaledObject }} in {{ $labels.namespace }}",
            description="{{ $value | humanize }} queries failed within 5 minutes, so the replicas stay as many as they "
            "are, whatever the load.",
            runbook="autoscaling-blind",
        )
    ]


def scaled_models() -> list[Alert]:
    """What the cluster's own autoscaler says of models, whoever installed what it asks."""
    idle = queries.total(
        "kube_horizontalpodautoscaler_status_condition",
        f'{queries.IN_MODELS}, condition="ScalingActive", status="true"',
        by=("horizontalpodautoscaler",),
    )
    wanted, most = queries.wanted_replicas(), queries.most_replicas()
    return [
        Alert(
            name="AutoscalerIdle",
            severity="ticket",
            expression=f"{idle} == 0",
            minutes=_MINUTES,
            summary="{{ $labels.horizontalpodautoscaler }} sets no number of replicas",
            description="Kubernetes' autoscaler gets no metric of the model: KEDA's adapter is away, or its queries "
            "fail. The replicas stay as many as they are.",
            runbook="autoscaling-blind",
        ),
        Alert(
            name="ScaledToTheMost",
            severity="ticket",
            expression=f"{wanted} >= {most}",
            minutes=_LONG_MINUTES,
            summary="{{ $labels.horizontalpodautoscaler }} has been at its most replicas for long",
            description="{{ $value | humanize }} replicas, and more may be needed: the load is no longer a peak. "
            "Raise server.replicas, add nodes, or refuse some of it by tiers and limits.",
            runbook="model-overloaded",
        ),
    ]
