"""Prints on stderr the current step, layer by layer, and the slow ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from floor.secret_texts import without_secrets

# Shorter steps are not slow.
SLOW_S = 2.0


class Progress:
    """Lines on `stream`, or none when it is None."""

    def __init__(self, stream: TextIO | None = sys.stderr) -> None:
        self._stream = stream
        self._took: list[tuple[float, str]] = []

    @contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Announce one layer of the work and how long it took."""
        self._say(f"{name} ...")
        began = time.monotonic()
        try:
            yield
        finally:
            self.took(name, time.monotonic() - began)

    def took(self, name: str, seconds: float) -> None:
        """Note the time of one item."""
        self._took.append((seconds, name))

    def slowest(self) -> str:
        """The slowest item, if it was slow: `slowest: render prod, 4.1 s`."""
        if not self._took or max(self._took)[0] < SLOW_S:
            return ""
        seconds, name = max(self._took)
        return f"slowest: {name}, {seconds:.1f} s"

    def note(self, text: str) -> None:
        """Print what is no step, but changes how the result is read."""
        self._say(text)

    def end(self) -> None:
        """Print what was slow."""
        if text := self.slowest():
            self._say(text)

    def _say(self, text: str) -> None:
        if self._stream:
            print(without_secrets(text), file=self._stream, flush=True)
