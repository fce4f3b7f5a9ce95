"""The dashboards: one per question, in the order in which a person asks them."""

from __future__ import annotations

from components.monitoring.dashboards import (
    cost,
    failures,
    gateway,
    hardware,
    hosts,
    slo,
    storage,
    usage,
    where_time_goes,
)

BOARDS = (
    slo.BOARD,
    where_time_goes.BOARD,
    failures.BOARD,
    gateway.BOARD,
    hardware.BOARD,
    hosts.BOARD,
    storage.BOARD,
    cost.BOARD,
    usage.BOARD,
)
