"""The one form of an error that a user can mend, and what the exit status says."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit status of every command."""

    OK = 0
    REFUSED = 1
    """What was looked at is not fine: an invalid site, a broken rule, a refused change."""
    USAGE = 2
    """The command line itself is wrong."""
    UNABLE = 3
    """The command could not look: a program, file or service that it needs is missing or failed."""
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done, and nothing is wrong",
    Exit.REFUSED: "what was looked at is not fine: an invalid site, a broken rule, a refused change",
    Exit.USAGE: "the command line is wrong",
    Exit.UNABLE: "could not look: a program, file or service is missing or failed",
    Exit.INTERRUPTED: "interrupted",
}


class SitectlError(Exception):
    """What went wrong, in the user's words; shown as `error: what`, then got, allowed and fix where they are known."""

    def __init__(
        self, what: str, *, got: str = "", allowed: str = "", fix: str = "", status: Exit = Exit.UNABLE
    ) -> None:
        self.what = what
        self.got = got
        self.allowed = allowed
        self.fix = fix
        self.status = status
        super().__init__(self.text())

    def text(self) -> str:
        """The error as it is printed."""
        said = (("got", self.got), ("allowed", self.allowed), ("fix", self.fix))
        return "\n".join([f"error: {self.what}", *(f"  {name}: {value}" for name, value in said if value)])

    def record(self) -> dict[str, str]:
        """The error as `--json` gives it."""
        said = {"what": self.what, "got": self.got, "allowed": self.allowed, "fix": self.fix}
        return {name: value for name, value in said.items() if value}
