"""Alerts about models whose requests another one answers while they are full or away."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

_GATEKEEPERS = 'job="gatekeeper"'
# Longer than a spike.
_MINUTES = 30
# Each gatekeeper reads each model once a second: an eighth of what two of them read in five minutes.
_UNREAD = 75


def overflows() -> list[Alert]:
    """Answers come meanwhile, and are those of another model."""
    share = queries.highest("gatekeeper_overflow_share", _GATEKEEPERS, by=("model",))
    unread = queries.growth("gatekeeper_overflow_unread_total", _GATEKEEPERS, by=("model",), window="5m")
    return [
        Alert(
            name="ModelOverflows",
            severity="ticket",
            expression=f"{share} > 0",
            minutes=_MINUTES,
            summary="Another model answers requests for {{ $labels.model }}, which is full or away",
            description="{{ $value | humanizePercentage }} of the sessions that may overflow do, and some have for "
            f"{_MINUTES} minutes: these tenants get answers of another model than they ask for.",
            runbook="model-overloaded",
        ),
        Alert(
            name="OverflowBlind",
            severity="ticket",
            expression=f"{unread} > {_UNREAD}",
            minutes=10,
            summary="Gatekeepers cannot read how full {{ $labels.model }} is",
            description="No picker of it answered {{ $value | humanize }} times within 5 minutes. It counts as one "
            "with room, so that none of its requests overflows, or its target gets them while it is full.",
            runbook="picker-down",
        ),
    ]
