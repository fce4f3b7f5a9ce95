"""Alerts about logs: that lines of pods get off their node, and that their store has room."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert
from components.specs.logs import FULL_PERCENT

_COLLECTORS, _STORE = 'job="log-collectors"', 'job="log-store"'
# A volume that fills gives someone a day or so: an estimate.
_FILLS_SHARE = (FULL_PERCENT - 5) / 100
# A collector empties its queue every second.
_EMPTIED = "10m"
# Bytes of lines that a full queue drops, blocks that the store refuses for good, and lines that cannot be read or are
# too long.
_LOST = (
    "vm_persistentqueue_bytes_dropped_total",
    "vlagent_remotewrite_packets_dropped_total",
    "vl_rows_dropped_total",
    "vl_too_long_lines_skipped_total",
)


def collectors() -> list[Alert]:
    """What each node sends."""
    lost = (queries.growth(metric, _COLLECTORS, by=("node",), window="15m") for metric in _LOST)
    waits = f"max by (node) (min_over_time(vlagent_remotewrite_pending_data_bytes{{{_COLLECTORS}}}[{_EMPTIED}]))"
    return [
        Alert(
            name="LogsLost",
            severity="ticket",
            expression=" or ".join(f"{counted} > 0" for counted in lost),
            minutes=0,
            summary="Log lines of {{ $labels.node }} are lost",
            description="{{ $value | humanize }} bytes, blocks or lines within 15 minutes: the node's queue is full, "
            "or the store refuses what it gets.",
            runbook="logs-missing",
        ),
        Alert(
            name="LogsWait",
            severity="ticket",
            expression=f"{waits} > 0",
            minutes=15,
            summary="Log lines of {{ $labels.node }} do not reach their store",
            description="{{ $value | humanize1024 }}B wait on the node. It keeps the last 2 GB.",
            runbook="logs-missing",
        ),
    ]


def store() -> list[Alert]:
    """VictoriaLogs, where the program installs it."""
    free, size = (queries.lowest(f"vl_{part}_disk_space_bytes", _STORE) for part in ("free", "total"))
    return [
        Alert(
            name="LogStoreFills",
            severity="ticket",
            expression=f"1 - {free} / {size} > {_FILLS_SHARE:g}",
            minutes=60,
            summary="The volume of the log store fills up",
            description="{{ $value | humanizePercentage }} is used. "
            f"At {FULL_PERCENT} % the store deletes its oldest day, before `logs.keep_days` are over.",
            runbook="logs-missing",
        ),
        Alert(
            name="LogStoreTakesNothing",
            severity="ticket",
            expression=f"{queries.highest('vl_storage_is_read_only', _STORE)} > 0",
            minutes=5,
            summary="The log store takes no lines",
            description="Its volume is full ({{ $value }} is yes), and lines wait on the nodes.",
            runbook="logs-missing",
        ),
    ]
