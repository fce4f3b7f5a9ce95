"""Cases of the alerts on logs, and on records in DNS."""

from __future__ import annotations

from tests.alert_series import of_collector, of_dns, of_log_store
from tests.alert_site import Case, constant, grows

_NODE = {"node": "hgx-1"}

CASES = (
    # 100 lines a minute.
    Case(
        alert="LogsLost",
        change={of_collector("vl_rows_dropped_total", ', reason="too_many_fields"'): grows(100)},
        labels=_NODE,
        shown="1.5k",
    ),
    Case(
        alert="LogsLost",
        change={of_collector("vm_persistentqueue_bytes_dropped_total", ', path="q"'): grows(1e6)},
        labels=_NODE,
        shown="15M",
    ),
    Case(
        alert="LogsLost",
        change={of_collector("vl_too_long_lines_skipped_total"): grows(1)},
        labels=_NODE,
        shown="15",
    ),
    # The store is away: what comes is added to the queue.
    Case(
        alert="LogsWait",
        change={of_collector("vlagent_remotewrite_pending_data_bytes", ', path="q"'): constant(3 * 2**20)},
        labels=_NODE,
        shown="3Mi",
    ),
    Case(
        alert="LogStoreFills",
        change={of_log_store("vl_free_disk_space_bytes"): constant(9e9)},
        labels={},
        shown="82%",
        minutes=90,
    ),
    Case(
        alert="LogStoreTakesNothing",
        change={of_log_store("vl_storage_is_read_only"): constant(1)},
        labels={},
        shown="1",
    ),
    Case(
        alert="DnsRecordsStale",
        change={of_dns("controller_last_sync_timestamp_seconds"): constant(60)},
        labels={},
        shown="59",
    ),
    # The server refuses the transfer: not one is seen.
    Case(
        alert="DnsRecordsUnseen",
        change={of_dns("controller_verified_records", ', record_type="a"'): None},
        labels={},
        shown="2",
    ),
)
