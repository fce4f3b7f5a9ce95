"""Alerts about etcd: its snapshots, and its members."""

from __future__ import annotations

from components.monitoring import host_queries, queries
from components.monitoring.alerts.alert import Alert
from floor.namespaces import ETCD_BACKUP

_HOUR_S = 3600
_MINUTES = 15
# Of a healthy disk 99 % of the log's writes take up to 10 ms, of the database's up to 25 ms (etcd.io/docs/v3.6/faq).
# A leader sends its heartbeat every 100 ms, which a write of this length delays. Both are bounds of the histograms.
_LOG_S, _DATABASE_S = 0.128, 0.256
_SLOW_SHARE = 0.01
# From its quota on etcd takes no write. An estimate of when to look.
_FULL_SHARE = 0.8


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


def members() -> list[Alert]:
    """What etcd's members measure of themselves."""
    slow = " or ".join(
        f"{host_queries.slow_writes(histogram, bound_s)} > {_SLOW_SHARE}"
        for histogram, bound_s in (
            ("etcd_disk_wal_fsync_duration_seconds", _LOG_S),
            ("etcd_disk_backend_commit_duration_seconds", _DATABASE_S),
        )
    )
    leader = queries.lowest("etcd_server_has_leader", host_queries.ETCD, by=("node",))
    answers = queries.lowest("up", host_queries.ETCD, by=("node",))
    return [
        Alert(
            name="EtcdNoLeader",
            severity="page",
            expression=f"{leader} == 0",
            minutes=1,
            summary="The etcd of {{ $labels.node }} has no leader",
            description="It sees no majority of members ({{ $value }} is no). Where none sees one, Kubernetes takes no "
            "change; models answer on.",
            runbook="control-plane-unwell",
        ),
        Alert(
            name="EtcdMemberDown",
            severity="ticket",
            expression=f"{answers} == 0 or absent(up{{{host_queries.ETCD}}})",
            minutes=10,
            summary="The etcd of {{ $labels.node }} does not answer when it is measured",
            description="Prometheus cannot read its metrics ({{ $value }}). With one of three members gone, the loss "
            "of another one stops Kubernetes.",
            runbook="control-plane-unwell",
        ),
        Alert(
            name="EtcdSlowDisk",
            severity="ticket",
            expression=slow,
            minutes=15,
            summary="The etcd of {{ $labels.node }} waits for its disk",
            description="{{ $value | humanizePercentage }} of its writes took longer than "
            f"{_LOG_S * 1000:.0f} ms (log) or {_DATABASE_S * 1000:.0f} ms (database). It may lose its leader.",
            runbook="control-plane-unwell",
        ),
        Alert(
            name="EtcdNearlyFull",
            severity="ticket",
            expression=f"{host_queries.etcd_full()} > {_FULL_SHARE}",
            minutes=15,
            summary="The database of etcd on {{ $labels.node }} is nearly full",
            description="It takes {{ $value | humanizePercentage }} of its quota. Once it is full, Kubernetes takes no "
            "change.",
            runbook="control-plane-unwell",
        ),
    ]
