"""Cases of the alerts on the PostgreSQL that the platform runs."""

from __future__ import annotations

from tests.alert_site import Case, constant, database

CASES = (
    Case(
        alert="DatabaseStandbyMissing",
        change={database("cnpg_pg_replication_streaming_replicas"): constant(1)},
        labels={},
        shown="1",
    ),
    Case(
        alert="DatabaseWritesWait",
        change={database("cnpg_pg_replication_streaming_replicas"): constant(0)},
        labels={},
        shown="0",
        also=("DatabaseStandbyMissing",),
    ),
    Case(
        alert="DatabaseLogNotArchived",
        change={
            database("cnpg_pg_stat_archiver_last_archived_time"): constant(100),
            database("cnpg_pg_stat_archiver_last_failed_time"): constant(160),
        },
        labels={},
        shown="60",
    ),
    # Two of a backup a day are missing, and an hour.
    Case(
        alert="DatabaseBackupOld",
        change={database("barman_cloud_cloudnative_pg_io_last_available_backup_timestamp"): constant(-50 * 3600)},
        labels={},
        shown="51",
    ),
)
