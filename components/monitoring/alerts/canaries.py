"""Alerts about canaries: that one does not do worse than its model's stable revision."""

from __future__ import annotations

from components.monitoring import queries, revisions
from components.monitoring.alerts.alert import Alert

_WINDOW = "30m"


def canaries() -> list[Alert]:
    """Of a site with any."""
    first_tokens = queries.growth(
        "vllm:time_to_first_token_seconds_count", revisions.CANARIES, by=("model",), window=_WINDOW
    )
    slower = revisions.beside_stable(
        queries.ttft_s(0.95, revisions.CANARIES, window=_WINDOW),
        f"{revisions.SLOWER:g} * {queries.ttft_s(0.95, window=_WINDOW)}",
        ">",
    )
    more = revisions.beside_stable(
        revisions.failed_share(revisions.TO_CANARIES, window=_WINDOW), revisions.failed_share(window=_WINDOW), "-"
    )
    enough = f"and on (revision) {revisions.as_revision(first_tokens)} >= {revisions.FEWEST}"
    return [
        Alert(
            name="CanaryFails",
            severity="ticket",
            expression=f"{more} > {revisions.MORE_FAILED:g}",
            minutes=5,
            summary="Requests fail on {{ $labels.revision }}, the canary of {{ $labels.model }}",
            description="Of its requests {{ $value | humanizePercentage }} more end with 5xx than of those of the "
            "stable revision, over 30 minutes.",
            runbook="canary-worse",
        ),
        Alert(
            name="CanarySlower",
            severity="ticket",
            expression=f"{slower} {enough}",
            minutes=15,
            summary="First tokens take longer on {{ $labels.revision }}, the canary of {{ $labels.model }}",
            description="The TTFT at p95 is {{ $value | humanizeDuration }} over 30 minutes, more than "
            f"{revisions.SLOWER:g} times that of the stable revision.",
            runbook="canary-worse",
        ),
    ]
