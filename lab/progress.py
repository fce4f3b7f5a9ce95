"""One progress line per part of a long task: name, n of m, elapsed time. Plain lines, so CI logs read well."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Progress:
    """Numbers the parts of one task; `step` prints a line when a part starts and when it ends."""

    task: str
    total: int
    _done: int = field(default=0, init=False)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run one part; a failure is printed with its elapsed time and goes on to the caller."""
        self._done += 1
        head = f"[{self.task} {self._done}/{self.total}] {name}"
        started = time.monotonic()
        print(f"{head} ...", file=sys.stderr, flush=True)
        try:
            yield
        except BaseException:
            print(f"{head} failed after {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
            raise
        print(f"{head} ok ({time.monotonic() - started:.1f} s)", file=sys.stderr, flush=True)

    def skip(self, name: str, why: str) -> None:
        """Count a part that needs no work."""
        self._done += 1
        print(f"[{self.task} {self._done}/{self.total}] {name} {why}", file=sys.stderr, flush=True)
