"""Alerts about Secrets that the program's external-secrets should fill."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

# Some refreshes of a short interval, so that a store that restarts is no alert.
_MINUTES = 30


def secrets() -> list[Alert]:
    """Their keys stay as they were: what is missed is the next one."""
    ready = queries.highest(
        "externalsecret_status_condition",
        f'{queries.SECRETS}, condition="Ready", status="True"',
        by=("namespace", "name"),
    )
    return [
        Alert(
            name="SecretNotRefreshed",
            severity="ticket",
            expression=f"{ready} < 1",
            minutes=_MINUTES,
            summary="The Secret {{ $labels.name }} in {{ $labels.namespace }} is not refreshed",
            description="external-secrets could not read it from the site's store ({{ $value }} is no). It keeps the "
            "keys that it has; a key that is rotated in the store does not arrive.",
            runbook="secret-not-ready",
        )
    ]
