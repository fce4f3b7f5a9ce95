"""The one form of an error that a user can fix, and what the exit status means."""

from __future__ import annotations

import errno
import traceback
from enum import IntEnum
from pathlib import Path

from floor.problems import Problem, ProblemError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIX_OF_A_FILE = "name another file or folder, or make this one usable"
_FIX_OF_A_LIMIT = "end other programs, or raise the limits of this shell: ulimit -a shows them"
_FIXES = {
    errno.EMFILE: "let the program open more files: ulimit -n 1024",
    errno.EAGAIN: "let it start more processes: end others, or raise ulimit -u",
    errno.ENOMEM: "free memory, or raise ulimit -v",
    **dict.fromkeys(FULL_DISK, "free space there, or name another place"),
}


class Exit(IntEnum):
    """Exit status of every command."""

    OK = 0
    REFUSED = 1
    """What was looked at is not fine: an invalid site, a broken rule, a refused change."""
    USAGE = 2
    """The command line itself is wrong."""
    UNABLE = 3
    """The command could not check anything: a program, file or service that it needs is missing or failed."""
    BUG = 70
    """sitectl itself is wrong, as BSD's sysexits names it."""
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done, and nothing is wrong",
    Exit.REFUSED: "the check found a problem: an invalid site, a broken rule, a refused change",
    Exit.USAGE: "the command line is wrong",
    Exit.UNABLE: "the check could not run: a program, file or service is missing or failed",
    Exit.BUG: "sitectl has a bug: its message names the place, --debug shows more",
    Exit.INTERRUPTED: "interrupted",
}


class SitectlError(ProblemError):
    """What went wrong, in the user's terms; shown as `error: what`, then got, allowed and fix where they are known."""

    def __init__(
        self, what: str, *, got: str = "", allowed: str = "", fix: str = "", status: Exit = Exit.UNABLE
    ) -> None:
        super().__init__(what, got=got, allowed=allowed, fix=fix)
        self.status = status

    @classmethod
    def of(cls, problem: Problem, status: Exit = Exit.UNABLE, *, before: str = "", after: str = "") -> SitectlError:
        """A problem as an error of a command, with text around what is wrong."""
        what = f"{before}{problem.what}{after}"
        return cls(what, got=problem.got, allowed=problem.allowed, fix=problem.fix, status=status)

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The error as it is printed."""
        what, *details = self.record().items()
        return "\n".join([f"error: {what[1]}", *(f"  {name}: {value}" for name, value in details)])

    def record(self) -> dict[str, str]:
        """The error as `--json` gives it."""
        problem = self.problem
        parts = {"what": problem.what, "got": problem.got, "allowed": problem.allowed, "fix": problem.fix}
        return {name: value for name, value in parts.items() if value}


def unusable_file(error: OSError) -> SitectlError:
    """A file, folder or other thing that the system refuses."""
    reason = error.strerror or type(error).__name__
    what = f"{error.filename}: {reason}" if error.filename else f"the system refuses: {reason}"
    return SitectlError(what, fix=_FIXES.get(error.errno or 0, _FIX_OF_A_FILE if error.filename else _FIX_OF_A_LIMIT))


def unwritable_output(error: OSError) -> SitectlError:
    """What stdout is takes no text."""
    reason = error.strerror or type(error).__name__
    return SitectlError(f"the output cannot be written: {reason}", fix="write it to another place")


def no_resources(reason: str) -> SitectlError:
    """The system gives no memory, or no thread."""
    return SitectlError(f"the program gets no more of the system: {reason}", fix=_FIX_OF_A_LIMIT)


def bug(error: Exception) -> SitectlError:
    """An unforeseen error, without its message, which may quote the user's files."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return SitectlError(
        f"sitectl has a bug: {type(error).__name__}{place}",
        fix="report it in the project's issue tracker, with the command line and what --debug shows",
        status=Exit.BUG,
    )
