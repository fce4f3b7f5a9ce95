"""Alerts about models whose number of replicas follows their load."""

from __future__ import annotations

from components.monitoring import queries, scaling_queries
from components.monitoring.alerts.alert import Alert

# A restart of Prometheus is no alert.
_MINUTES = 10
# KEDA looks every 15 s at what Prometheus reads every 15 s.
_NOTICED_MINUTES = 3
# Above that, so that one refusal alone is not forgotten meanwhile.
_ASKED = "10m"
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


def starting_models() -> list[Alert]:
    """Models that may have no replica: each request is refused until one serves. What starts has the alerts of others.

    A replica that starts and is not ready in its time is `ModelHasNoReplica`, as of any model.
    """
    return [
        Alert(
            name="ModelNotStarted",
            severity="page",
            expression=scaling_queries.asked_in_vain(_ASKED),
            minutes=_NOTICED_MINUTES,
            summary="{{ $labels.model }} is asked for and does not start",
            description="Its requests get 503 model_starting, and its Deployment is to have no replica for minutes "
            "after the first of them: KEDA is away, or does not see them.",
            runbook="autoscaling-blind",
        )
    ]


def scaled_models() -> list[Alert]:
    """What the cluster's own autoscaler reports of models, with a KEDA of the site's own too."""
    return [
        Alert(
            name="AutoscalerIdle",
            severity="ticket",
            expression=scaling_queries.idle(),
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
