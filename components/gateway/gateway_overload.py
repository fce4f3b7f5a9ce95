"""What Envoy does when its memory fills: it resets the clients that hold most of it, and serves all others."""

from __future__ import annotations

from typing import Any

_HEAP = "envoy.resource_monitors.fixed_heap"
# Shares of the heap that Envoy Gateway allows, four fifths of the pod's memory. It refuses requests from 0.98 on.
_BEGINS, _ENDS = 0.7, 0.9
# Streams below 2**20 bytes are let alone.
_COUNTED_FROM_POWER_OF_TWO = 20


def overload_actions() -> list[dict[str, Any]]:
    """Envoy's own actions against readers who take so little that answers pile up.

    With HTTP/2 the stream is there until its answer is read, and is reset. With HTTP/1 it ends when the engine has
    ended; what is left belongs to an idle connection, which is closed as soon as a second passes without a byte.
    """
    pressure = [{"name": _HEAP, "scaled": {"scaling_threshold": _BEGINS, "saturation_threshold": _ENDS}}]
    idle = {"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "2s"}
    return [
        {"name": "envoy.overload_actions.reset_high_memory_stream", "triggers": pressure},
        {
            "name": "envoy.overload_actions.reduce_timeouts",
            "triggers": pressure,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
                "timer_scale_factors": [idle],
            },
        },
    ]


def buffer_accounting() -> dict[str, Any]:
    """Without it Envoy does not know which streams hold most."""
    return {"minimum_account_to_track_power_of_two": _COUNTED_FROM_POWER_OF_TWO}


def overload_patches() -> list[dict[str, Any]]:
    """The same as patches of the bootstrap. Envoy Gateway writes its overload manager for pods with a memory limit."""
    return [
        *({"op": "add", "path": "/overload_manager/actions/-", "value": action} for action in overload_actions()),
        {"op": "add", "path": "/overload_manager/buffer_factory_config", "value": buffer_accounting()},
    ]
