"""What ends the program: a sentence for people, and an exit status for each sort."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses; a page lists them (docs/runbooks/weights-not-there.md)."""

    OK = 0
    OTHER = 1
    ORDER = 2
    TOKEN = 20
    NOT_FOUND = 21
    CORRUPT = 22
    NO_SPACE = 23
    UNREACHABLE = 24
    STORAGE = 25
    INCOMPLETE = 30
    STOPPED = 143


class WeightsError(Exception):
    """What is wrong, what was found, what is allowed, and the fix; never a token."""

    def __init__(self, status: Exit, what: str, *, fix: str, got: str = "", allowed: str = "") -> None:
        parts = [what, f"got {got}" if got else "", f"allowed: {allowed}" if allowed else ""]
        self.what, self.fix = "; ".join(filter(None, parts)), fix
        super().__init__(f"{self.what}\n  fix: {fix}")
        self.status = status
