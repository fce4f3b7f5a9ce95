"""The alert about snapshots of etcd."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert
from floor.namespaces import ETCD_BACKUP

_HOUR_S = 3600
_MINUTES = 15


def etcd(every_h: int) -> list[Alert]:
    """Of a backup every so many hours: after two that are missing, with an hour for the run itself."""
    where = f'{queries.OBJECTS}, namespace="{ETCD_BACKUP}"'
    # Before the first one has arrived, since the CronJob was made.
    since = f"kube_cronjob_status_last_successful_time{{{where}}} or kube_cronjob_created{{{where}}}"
    return [
        Alert(
            name="EtcdBackupOld",
            severity="ticket",
            expression=f"(time() - max by (namespace, cronjob) ({since})) / {_HOUR_S} > {2 * every_h + 1}",
            minutes=_MINUTES,
            summary="No snapshot of etcd has arrived for {{ $value | humanize }} hours",
            description="No run of the CronJob {{ $labels.namespace }}/{{ $labels.cronjob }} has ended well since "
            "then. What is written to Kubernetes meanwhile is lost where etcd loses its majority.",
            runbook="recover-etcd",
        )
    ]
