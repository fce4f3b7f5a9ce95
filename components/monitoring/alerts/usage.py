"""Alerts about the ledger of usage: that rows arrive, can be read, and have a price."""

from __future__ import annotations

from components.monitoring import queries, reconciliation
from components.monitoring.alerts.alert import Alert

_LEDGERS, _SHIPPERS = 'job="ledger"', 'job="usage-shipper"'
_MINUTE_S = 60
_BEHIND_MINUTES = 5
# Rows that waited for a while are not missing.
_GAP_MINUTES = 30
_UNMEASURED_HOURS = 2


def shippers() -> list[Alert]:
    """What is not shipped yet is on the disk of an Envoy pod, and nowhere else."""
    unreadable = queries.growth("inference_usage_shipper_unreadable_lines_total", _SHIPPERS, by=("pod",), window="1h")
    dropped = queries.growth("envoy_filesystem_write_failed", queries.PROXIES, by=("pod",), window="10m")
    oldest = queries.highest("inference_usage_shipper_oldest_seconds", _SHIPPERS, by=("pod",))
    return [
        Alert(
            name="UsageBehind",
            severity="page",
            expression=f"{oldest} / {_MINUTE_S} > {_BEHIND_MINUTES}",
            minutes=10,
            summary="The usage of requests waits in the Envoy pod {{ $labels.pod }}",
            description="For {{ $value | humanize }} minutes: the ledger does not confirm it. Requests are served, and "
            "nothing is lost while the pod stays and has room; five minutes after its end, what it still has is.",
            runbook="usage-behind",
        ),
        Alert(
            name="UsageLost",
            severity="page",
            expression=f"{dropped} > 0",
            minutes=0,
            summary="The Envoy pod {{ $labels.pod }} has no room for the usage of requests",
            description="Envoy dropped {{ $value | humanize }} pieces of its logs within ten minutes, each of one line "
            "or many, and goes on serving. Lines of known clients are in no bill.",
            runbook="usage-behind",
        ),
        Alert(
            name="UsageUnreadable",
            severity="ticket",
            expression=f"{unreadable} > 0",
            minutes=0,
            summary="The ledger cannot read lines of the Envoy pod {{ $labels.pod }}",
            description="{{ $value | humanize }} within an hour. They are in no bill; the ledger keeps them, and logs "
            "why.",
            runbook="usage-behind",
        ),
    ]


def ledgers() -> list[Alert]:
    """Two take rows, and either is enough."""
    return [
        Alert(
            name="UsageGap",
            severity="ticket",
            expression=reconciliation.gap_share(),
            minutes=_GAP_MINUTES,
            # The next hour is compared some minutes after it has ended.
            lasts_minutes=60,
            summary="The ledger's {{ $labels.kind }} tokens of {{ $labels.model }} are not those of its engines",
            description="{{ $value | humanizePercentage }} of the last full hour's are in no row, more than abandoned "
            "requests explain; below 0, rows have more.",
            runbook="usage-gap",
        ),
        Alert(
            name="UsageNotReconciled",
            severity="ticket",
            expression=f"{reconciliation.unmeasured_hours()} > {_UNMEASURED_HOURS}",
            minutes=10,
            summary="No ledger measures the hours that end",
            description="For {{ $value | humanize }} hours; hundreds of thousands of them if never since it started. "
            "Rows are not held against what engines count.",
            runbook="usage-gap",
        ),
        Alert(
            name="LedgersDown",
            severity="ticket",
            expression=f"({queries.total('up', _LEDGERS)} or vector(0)) == 0",
            minutes=10,
            summary="No ledger answers",
            description="Prometheus reaches none ({{ $value }} is none). Usage waits in the Envoy pods, or the "
            "ledgers' metrics are out of reach.",
            runbook="usage-behind",
        ),
        _chores(),
    ]


def _chores() -> Alert:
    """What a ledger does by itself, of which no request notices that it fails."""
    # A chore that goes on failing is tried every two minutes at least (services/ledger/server.py).
    failed = queries.growth("inference_usage_chore_failures_total", _LEDGERS, by=("chore",), window="10m")
    return Alert(
        name="LedgerChoreFails",
        severity="ticket",
        expression=f"{failed} > 0",
        minutes=30,
        summary="The ledger fails at its chore: {{ $labels.chore }}",
        description="{{ $value | humanize }} times within ten minutes, and so for half an hour. Rows are added "
        "meanwhile; the runbook has what each chore is for.",
        runbook="usage-behind",
    )


def prices() -> list[Alert]:
    """Of a site with prices."""
    unpriced = queries.growth("inference_usage_unpriced_rows_total", _LEDGERS, window="1h")
    return [
        Alert(
            name="UsageUnpriced",
            severity="ticket",
            expression=f"{unpriced} > 0",
            minutes=0,
            summary="Requests used tokens of a model without a price",
            description="{{ $value | humanize }} within an hour; they cost nothing in the ledger.",
            runbook="usage-behind",
        ),
        Alert(
            name="PricesUnusable",
            severity="ticket",
            expression=f"{queries.highest('inference_usage_prices_unusable', _LEDGERS, by=('pod',))} > 0",
            minutes=10,
            summary="The ledger {{ $labels.pod }} cannot use its file of prices",
            description="It goes on with the prices before ({{ $value }} is yes). A pod that starts with this file "
            "ends.",
            runbook="usage-behind",
        ),
    ]
