"""Alerts about certificates that the program's cert-manager should make and renew."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

# cert-manager tries again after one hour, then after two, and so on.
_OVERDUE_HOURS = 24
_HOUR_S = 3600


def certificates() -> list[Alert]:
    """A month before proxies know of it: a renewal is due when a third of a certificate's life is left."""
    ready = queries.highest(
        "certmanager_certificate_ready_status",
        f'{queries.CERTIFICATES}, condition="True"',
        by=("namespace", "name"),
    )
    due = queries.highest(
        "certmanager_certificate_renewal_timestamp_seconds", queries.CERTIFICATES, by=("namespace", "name")
    )
    return [
        Alert(
            name="CertificateNotReady",
            severity="ticket",
            expression=f"{ready} < 1",
            minutes=30,
            summary="The certificate {{ $labels.name }} in {{ $labels.namespace }} is not ready",
            description="cert-manager has not made it as it is declared, or it has expired ({{ $value }} is no). The "
            "gateway goes on with the one that its Secret has, if there is one.",
            runbook="certificate-expires",
        ),
        Alert(
            name="CertificateNotRenewed",
            severity="ticket",
            expression=f"(time() - {due}) / {_HOUR_S} > {_OVERDUE_HOURS}",
            minutes=30,
            summary="The certificate {{ $labels.name }} in {{ $labels.namespace }} is not renewed",
            description="Its renewal was due {{ $value | humanize }} hours ago. It serves until it expires.",
            runbook="certificate-expires",
        ),
    ]
