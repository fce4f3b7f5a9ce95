"""Alerts about records in DNS that the program's external-dns writes."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

_RECORDS = 'job="dns-records"'
# It looks every minute.
_STALE_MINUTES = 15


def records() -> list[Alert]:
    """An address that changes is in no record until the next look."""
    looked = queries.highest("external_dns_controller_last_sync_timestamp_seconds", _RECORDS)
    return [
        Alert(
            name="DnsRecordsStale",
            severity="ticket",
            expression=f"(time() - {looked}) / 60 > {_STALE_MINUTES}",
            minutes=5,
            summary="Records in DNS are not looked after",
            description="external-dns has compared none for {{ $value | humanize }} minutes (millions: not once since "
            "its start): the DNS server, the key, or the zone transfer. Clients find what the records have by now.",
            runbook="dns-records",
        ),
    ]
