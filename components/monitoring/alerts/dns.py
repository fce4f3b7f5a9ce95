"""Alerts about records in DNS that the program's external-dns writes."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

_RECORDS = 'job="dns-records"'
# It looks every minute.
_STALE_MINUTES = 15


def records() -> list[Alert]:
    """An address that changes is in no record until the next look."""
    asked, seen = (
        queries.total(f"external_dns_{what}", _RECORDS) for what in ("source_records", "controller_verified_records")
    )
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
        # A transfer that is refused leaves no error behind, and what is not seen has no owner.
        Alert(
            name="DnsRecordsUnseen",
            severity="ticket",
            expression=f"{asked} - ({seen} or vector(0)) > 0",
            minutes=_STALE_MINUTES,
            summary="Records in DNS are not found where they were written",
            description="external-dns does not find {{ $value | humanize }} records in what the DNS server transfers. "
            "Most likely the key may not transfer the zone: then it adds this site's address beside that of another "
            "site, and leaves an old one.",
            runbook="dns-records",
        ),
    ]
