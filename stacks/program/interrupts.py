"""How the program ends when the engine ends it."""

from __future__ import annotations

import signal


def end_without_a_traceback() -> None:
    """The engine interrupts a program that still runs when a resource has failed, whose error is the one to read.

    Left to Python, the interruption would be a traceback of whatever line ran just then.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
