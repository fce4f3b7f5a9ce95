"""The one form of an error that a user can fix, and what the exit status says."""

from __future__ import annotations

import traceback
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit status of every command."""

    OK = 0
    REFUSED = 1
    """What was looked at is not fine: an invalid site, a broken rule, a refused change."""
    USAGE = 2
    """The command line itself is wrong."""
    UNABLE = 3
    """The command could not look: a program, file or service that it needs is missing or failed."""
    BUG = 70
    """sitectl itself is wrong, as BSD's sysexits names it."""
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done, and nothing is wrong",
    Exit.REFUSED: "what was looked at is not fine: an invalid site, a broken rule, a refused change",
    Exit.USAGE: "the command line is wrong",
    Exit.UNABLE: "could not look: a program, file or service is missing or failed",
    Exit.BUG: "sitectl has a bug: its message says where, --debug shows more",
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


def unusable_file(error: OSError) -> SitectlError:
    """A file, folder or stream that the system refuses."""
    reason = error.strerror or type(error).__name__
    what = f"{error.filename}: {reason}" if error.filename else f"the output cannot be written: {reason}"
    fix = "name another file or folder, or make this one usable" if error.filename else "write it to another place"
    return SitectlError(what, fix=fix)


def bug(error: Exception) -> SitectlError:
    """What nobody foresaw, without its message, which may quote what is in the user's files."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return SitectlError(
        f"sitectl has a bug: {type(error).__name__}{place}",
        fix="report it in the project's issue tracker, with the command line and what --debug shows",
        status=Exit.BUG,
    )
