"""The alert about snapshots of etcd."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

_HOUR_S = 3600
_MINUTES = 15


def etcd(every_h: int) -> list[Alert]:
    """Of a backup every so many hours: after two that are missing, with an hour for the run itself."""
    return [
        Alert(
            name="EtcdBackupOld",
            severity="ticket",
            expression=f"{queries.etcd_backup_age()} / {_HOUR_S} > {2 * every_h + 1}",
            minutes=_MINUTES,
            summary="etcd has not been saved for {{ $value | humanize }} hours",
            description="No run of the CronJob {{ $labels.namespace }}/{{ $labels.cronjob }} has ended well since "
            "then. What is written to Kubernetes meanwhile is lost where etcd loses its majority.",
            runbook="recover-etcd",
        )
    ]
