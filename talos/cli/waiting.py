"""Waiting for a machine, with a line whenever what it waits for changes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from talos.api.errors import MachineApiError, NotReadyError, TooSlowError, UnreachableError
from talos.cli.failures import InputError, NotInTimeError

POLL_S = 2.0
_SAY_AGAIN_S = 30.0
_PASSING = (UnreachableError, NotReadyError, TooSlowError)
_PAUSE = re.compile(r"[0-9]+(\.[0-9]+)?")
_DURATION = re.compile(r"(\d+)(s|m|h|d)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LOOK = "look into the machine's log, then run it again"
_Result = TypeVar("_Result")


class PendingError(Exception):
    """Not yet; the text names what is missing. `fix` is what to do where it stays so."""

    def __init__(self, missing: str, *, fix: str = _LOOK) -> None:
        super().__init__(missing)
        self.fix = fix


def seconds(text: str) -> int:
    """The seconds of `90`, `90s`, `15m`, `24h` or `7d`; InputError for anything else."""
    match = _DURATION.fullmatch(text)
    if not match or int(match[1]) == 0:
        raise InputError(f"duration: got {text!r}, allowed like 90s, 15m, 24h, 7d", fix="write it like that")
    return int(match[1]) * _SECONDS[match[2] or "s"]


def pause_s(text: str) -> float:
    """The seconds of `2` or `0.5`; InputError for anything else."""
    if not _PAUSE.fullmatch(text) or float(text) == 0:
        raise InputError(f"pause: got {text!r}, allowed seconds like 2 or 0.5", fix="write it like that")
    return float(text)


class Watch:
    """One deadline over all that a command waits for. Progress goes to stderr; stdout is for results."""

    def __init__(self, node: str, *, timeout_s: float, poll_s: float = POLL_S) -> None:
        """`poll_s` is the pause between two looks."""
        self.node = node
        self._poll_s = poll_s
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self._shown = ""
        self._shown_at = 0.0

    @property
    def elapsed_s(self) -> float:
        """Since the command began."""
        return time.monotonic() - self._started

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time within does not count against the deadline."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._started += time.monotonic() - began

    def say(self, what: str) -> None:
        """One line of progress; the same one again only after a while."""
        if what == self._shown and self.elapsed_s - self._shown_at < _SAY_AGAIN_S:
            return
        self._shown, self._shown_at = what, self.elapsed_s
        print(f"{self.node}: {what} ({self.elapsed_s:.0f} s)", file=sys.stderr, flush=True)

    def until(self, what: str, look: Callable[[], _Result], *, passing: tuple[type[Exception], ...] = ()) -> _Result:
        """What `look` returns, as soon as it does not raise PendingError or a failure that may pass.

        `passing` names further failures that may pass. NotInTimeError at the deadline, with the last reason.
        """
        waited: tuple[type[Exception], ...] = (PendingError, *_PASSING, *passing)
        while True:
            try:
                return look()
            except waited as error:
                reason = f"{error.call}: {error.cause}" if isinstance(error, MachineApiError) else str(error)
                fix = error.fix if isinstance(error, (MachineApiError, PendingError)) else _LOOK
            if self.elapsed_s + self._poll_s > self._timeout_s:
                raise NotInTimeError(
                    f"{self.node}: waited {self._timeout_s:.0f} s {what}; last: {reason}", fix=f"{fix}; or --timeout"
                )
            self.say(f"waiting {what}: {reason}")
            time.sleep(self._poll_s)
