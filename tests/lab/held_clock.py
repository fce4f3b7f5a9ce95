"""Time for code with a limit, in the place of its `time` module."""

from __future__ import annotations

import time
from collections.abc import Callable

# Only code that hangs needs so long.
_HANGS_S = 240.0
_FAR_S = 1e6


class HeldClock:
    """No time passes before something has happened, and then all of it, so a busy machine cannot upset a limit.

    `at_once`: the limit has passed when it has happened. Otherwise at the next pause, so that one more look is made.
    """

    def __init__(self, happened: Callable[[], bool], *, at_once: bool = True) -> None:
        self._happened, self._at_once, self._is_over = happened, at_once, False
        self._started = time.monotonic()
        self._now = 0.0

    def monotonic(self) -> float:
        if self._at_once and not self._is_over:
            self._is_over = self._happened()
        assert time.monotonic() - self._started < _HANGS_S, "what time waits for did not happen"
        if self._is_over:
            # At each look again: a limit may begin to count only now.
            self._now += _FAR_S
        return self._now

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self._is_over = self._is_over or self._happened()
