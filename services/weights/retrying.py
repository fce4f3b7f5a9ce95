"""How long to wait before a source is asked again: longer each time, and never longer than a bound."""

from __future__ import annotations

_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
# A server that counts requests opens again when its window ends; the hub's is five minutes, and these add up to more.
_BUSY_PAUSES_S = (15.0, 30.0, 60.0, 120.0, 120.0)
_LONGEST_PAUSE_S = 300.0

ATTEMPTS = 6
"""In a row that bring next to nothing; with a pause between each two."""


class RetryableError(Exception):
    """It may work the next time."""

    def __init__(self, text: str, after_s: float = 0.0, *, busy: bool = False) -> None:
        """after_s: the server asks to wait for so long. busy: it counts requests, and this was one too many."""
        super().__init__(text)
        self.after_s = after_s
        self.busy = busy

    def pause_s(self, attempt: int) -> float:
        """Seconds before the attempt after this one, which is counted from 1."""
        pauses = _BUSY_PAUSES_S if self.busy else _PAUSES_S
        return min(max(pauses[min(attempt, len(pauses)) - 1], self.after_s), _LONGEST_PAUSE_S)
