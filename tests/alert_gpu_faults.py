"""Cases of the watcher's alerts; see `alert_cases`."""

from __future__ import annotations

from tests.alert_series import of_watcher
from tests.alert_site import Case, constant

_REPORTED = ', node="hgx-1", source="{}"'

CASES = (
    Case(
        alert="GpuNodeDrained",
        change={of_watcher("out", ', node="hgx-1", fault="xid-79"'): constant(1)},
        labels={"node": "hgx-1", "fault": "xid-79"},
    ),
    Case(
        alert="GpuFaultHeld",
        change={of_watcher("held", ', node="hgx-1", reason="another node is out"'): constant(1)},
        labels={"node": "hgx-1"},
    ),
    Case(
        alert="GpuSourcesDisagree",
        change={of_watcher("reported", _REPORTED.format("dcgm")): constant(1)},
        labels={"node": "hgx-1"},
    ),
    Case(
        alert="WatcherBlind",
        change={of_watcher("looked_timestamp_seconds", ""): constant(0)},
        minutes=15,
    ),
    # Its pod is gone, and with it what it exposed.
    Case(
        alert="WatcherBlind",
        change={of_watcher("looked_timestamp_seconds", ""): None},
        labels={"job": "watcher"},
        minutes=15,
    ),
    Case(
        alert="NodeUnchecked",
        change={of_watcher("unchecked", ', node="hgx-1", reason="it is not ready"'): constant(1)},
        labels={"node": "hgx-1"},
    ),
)
