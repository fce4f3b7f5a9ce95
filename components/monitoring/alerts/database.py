"""Alerts about the PostgreSQL that the platform runs: its servers, their log, and base backups."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert
from components.specs.database import DatabaseSpec

_DATABASE = 'job="database"'
_MINUTES = 15
_HOUR_S = 3600
# The plugin's own metrics, beside those of the servers.
_BACKED_UP = "barman_cloud_cloudnative_pg_io_last_available_backup_timestamp"


def servers(spec: DatabaseSpec) -> list[Alert]:
    """What the servers report of each other, and of their way to the bucket where there is one."""
    standbys = queries.highest("cnpg_pg_replication_streaming_replicas", _DATABASE)
    of_servers = [
        Alert(
            name="DatabaseWritesWait",
            severity="page",
            expression=f"{standbys} < 1",
            minutes=5,
            summary="No PostgreSQL standby follows, so that writes wait",
            description="{{ $value | humanize }} servers have what the first one writes. No row of usage and no key is "
            "written until one is back: a write is confirmed once a second node has it. Requests are served meanwhile.",
            runbook="database-unwell",
        ),
        Alert(
            name="DatabaseStandbyMissing",
            severity="ticket",
            expression=f"{standbys} < {spec.instances - 1}",
            minutes=_MINUTES,
            summary=f"{{{{ $value | humanize }}}} of {spec.instances - 1} PostgreSQL standbys follow",
            description="Without any, writes wait until one is back.",
            runbook="database-unwell",
        ),
    ]
    if spec.backups is None:
        return of_servers
    failed = queries.highest("cnpg_pg_stat_archiver_last_failed_time", _DATABASE)
    archived = queries.highest("cnpg_pg_stat_archiver_last_archived_time", _DATABASE)
    return [
        *of_servers,
        Alert(
            name="DatabaseLogNotArchived",
            severity="page",
            expression=f"{failed} - {archived} > 0",
            minutes=_MINUTES,
            summary="PostgreSQL cannot write its log to the bucket",
            description="What is written since can only be restored from the nodes, and the log fills their volumes "
            "until it is archived.",
            runbook="database-backup",
        ),
        Alert(
            name="DatabaseBackupOld",
            severity="ticket",
            # The metric is 0 before the first one.
            expression=f"(time() - {queries.highest(_BACKED_UP, _DATABASE)}) / {_HOUR_S} > "
            f"{2 * spec.backups.every_h + 1}",
            minutes=_MINUTES,
            summary="No base backup of PostgreSQL has ended for {{ $value | humanize }} hours",
            description="A restore takes longer with each hour of log, and is not possible at all before the first "
            "backup.",
            runbook="database-backup",
        ),
    ]
