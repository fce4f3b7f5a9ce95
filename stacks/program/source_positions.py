"""Registrations without the lines of the program that made them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_out() -> Iterator[None]:
    """What is declared in here is registered without a stack trace.

    The SDK asks Python for the whole stack of each registration, and the engine keeps some 25 lines of it for each
    resource in the state, more than a small object itself has; nothing here reads them. How much of a stack Python
    gives is its own setting; an error that leaves this block is printed with all of it.
    """
    before = getattr(sys, "tracebacklimit", None)
    # One line is none: the SDK sends what is above the constructors.
    sys.tracebacklimit = 1
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before
