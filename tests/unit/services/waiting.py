"""Waits for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], bool], timeout_s: float = 40) -> None:
    """Fails unless it holds within that time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        # Nothing that these tests wait for can wake them.
        time.sleep(0.05)
