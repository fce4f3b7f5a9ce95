"""Waiting for what a lab does in its own time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import httpx
from kubernetes import client
from urllib3.exceptions import HTTPError

# No test is about how long something takes: only what hangs takes this long, also on a busy machine.
PATIENCE_S = 180


def eventually(holds: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
    """Wait for something truthy and return it; errors of a server that is away count as not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(client.ApiException, OSError, LookupError, HTTPError, httpx.TransportError):
            if result := holds():
                return result
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.1)
