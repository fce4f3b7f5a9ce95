"""The alert about credentials of the cluster that this program made."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

# An `up` issues them again.
_DAYS = 30
# None renews an authority of a running cluster, so a new cluster has to be planned.
_DAYS_OF_AUTHORITIES = 180
_DAY_S = 86400


def credentials() -> list[Alert]:
    """Later than the warnings of a preview, for a site that is not previewed."""
    return [
        Alert(
            name="CredentialEnds",
            severity="ticket",
            expression=(f"{_days_left('credential')} < {_DAYS} or {_days_left('authority')} < {_DAYS_OF_AUTHORITIES}"),
            minutes=60,
            summary="The {{ $labels.kind }} {{ $labels.credential }} of the cluster ends in {{ $value }} days",
            description="Below 0 it has ended. kubeconfig and talosconfig are the stack's own, by which `pulumi up` "
            "reaches the cluster. After an authority's end nothing that it signed is accepted.",
            runbook="credential-ends",
        )
    ]


def _days_left(kind: str) -> str:
    return f'floor(({queries.CREDENTIAL_END}{{kind="{kind}"}} - time()) / {_DAY_S})'
