"""Alerts about models whose number of replicas follows their load."""

from __future__ import annotations

from components.monitoring import queries, scaling_queries
from components.monitoring.alerts.alert import Alert

# A restart of Prometheus is no alert.
_MINUTES = 10
# A working day's peak, declared or not, is no lack of replicas.
_LONG_MINUTES = 24 * 60


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
    """What the cluster's own autoscaler reports of models, with a KEDA of the site's own too."""
    return [
        Alert(
            name="AutoscalerIdle",
            severity="ticket",
            expression=f"{scaling_queries.active()} == 0",
            minutes=_MINUTES,
            summary="{{ $labels.horizontalpodautoscaler }} sets no number of replicas",
            description="Kubernetes' autoscaler gets no metric of the model: KEDA's adapter is away, or its queries "
            "fail. The replicas stay as many as they are.",
            runbook="autoscaling-blind",
        ),
        Alert(
            name="ScaledToTheMost",
            severity="ticket",
            expression=f"{scaling_queries.wanted_replicas()} >= {scaling_queries.most_replicas()}",
            minutes=_LONG_MINUTES,
            summary="{{ $labels.horizontalpodautoscaler }} has wanted its maximum of replicas for a day",
            description="{{ $value | humanize }} replicas, and the load may need more. Raise server.replicas, add "
            "nodes, or refuse some of it by tiers and limits. If a declared peak lasts that long, so much is normal.",
            runbook="model-overloaded",
        ),
    ]
