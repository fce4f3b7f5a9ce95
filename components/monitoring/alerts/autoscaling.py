"""Alerts about models whose number of replicas follows their load."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

# A restart of Prometheus is no alert.
_MINUTES = 10


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
