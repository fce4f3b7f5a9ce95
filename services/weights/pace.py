"""Time for the program: a clock that tests replace, a limit on bytes per second, and lines of progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# The limit lets this many seconds of bytes through at once, so a slow start costs nothing later.
_BURST_S = 0.25
# Less than this is owed until it is worth a pause.
_SHORTEST_S = 0.01


class Clock:
    """The real one."""

    def now(self) -> float:
        """Seconds, never backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Limit:
    """Bytes per second of all threads together."""

    def __init__(self, bytes_per_s: float, clock: Clock) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock.now()

    def take(self, count: int) -> None:
        """Return when so many bytes may pass."""
        with self._lock:
            now = self._clock.now()
            begin = max(self._free_at, now - _BURST_S)
            self._free_at = begin + count / self._rate
            wait = self._free_at - now
        if wait > _SHORTEST_S:
            self._clock.sleep(wait)


class ProgressLines:
    """Writes a line every `every_s` seconds: bytes, rate, time left."""

    def __init__(self, total: int, clock: Clock, say: Callable[[str], None], *, every_s: float = 30.0) -> None:
        self._total = total
        self._clock = clock
        self._say = say
        self._every_s = every_s
        self._lock = threading.Lock()
        self._done = self._counted = 0
        self._began = self._next = clock.now()
        self._next += every_s

    def add(self, count: int, *, fetched: bool = True) -> None:
        """So many bytes more are there; `fetched` if they came over the network, which is what the rate counts."""
        with self._lock:
            self._done += count
            self._counted += count if fetched else 0
            due = self._clock.now() >= self._next
            if due:
                self._next = self._clock.now() + self._every_s
        if due:
            self.show()

    def note(self, text: str) -> None:
        """Write another line."""
        self._say(text)

    def show(self) -> None:
        """Write the line now."""
        spent = max(self._clock.now() - self._began, 1e-9)
        rate = self._counted / spent
        left = max(self._total - self._done, 0)
        share = 100 * self._done / self._total if self._total else 100
        more = f", {duration(left / rate)} left" if rate and left else ""
        self._say(f"{size(self._done)} of {size(self._total)} ({share:.0f} %), {size(rate)}/s{more}")


def size(count: float) -> str:
    """Bytes for people, with three digits, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
