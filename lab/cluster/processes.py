"""Facts about processes from /proc, and ending them. A zombie counts as gone: nothing of it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC = Path("/proc")
# Places in what `_stat` gives.
_STATE, _PARENT, _START = 0, 1, 19
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def is_alive(pid: int) -> bool:
    """Whether this process runs."""
    try:
        return _stat(pid)[_STATE] not in {"Z", "X"}
    except (OSError, IndexError):
        return False


def birth(pid: int) -> int | None:
    """When it was started, in ticks since the machine's start: tells a process from a later one of the same id."""
    try:
        return int(_stat(pid)[_START])
    except (OSError, IndexError):
        return None


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on; the second is a name that may hold anything."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def command_line(pid: int) -> list[str]:
    """argv of a process; empty when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def memory_bytes(pid: int) -> int:
    """Resident memory without shared file pages; 0 when the process is gone."""
    try:
        resident, shared = (PROC / str(pid) / "statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def marked(name: str, value: str) -> set[int]:
    """Processes started with this environment variable in another network namespace than this process's, and theirs.

    A shell of the user's that has the variable too is in this one, and is not the lab's to end.
    """
    here = (PROC / "self" / "ns" / "net").readlink()
    found = set()
    for pid in _with_variable(name, value):
        with contextlib.suppress(OSError):
            if (PROC / str(pid) / "ns" / "net").readlink() != here:
                found.add(pid)
    return found | _descendants(found)


def end_started_with(name: str, is_meant: Callable[[str], bool], *, rounds: int = 20) -> set[int]:
    """SIGKILL, until none is left, to processes whose variable has a value that is meant, and to what they started.

    Those that do not end are returned.
    """
    left: set[int] = set()
    for _ in range(rounds):
        found = {pid for pid, value in variables(name).items() if is_meant(value)}
        left = {pid for pid in found | _descendants(found) if is_alive(pid)}
        if not left:
            break
        send(left, signal.SIGKILL)
        wait_gone(left, timeout_s=0.5)
    return left


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty when it is gone."""
    try:
        words = (PROC / str(pid) / "environ").read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def variables(name: str) -> dict[int, str]:
    """Value of this environment variable by process id, of all processes that were started with it."""
    start = f"{name}=".encode()
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "environ").read_bytes().split(b"\0")
                if value := next((word for word in words if word.startswith(start)), None):
                    found[int(entry.name)] = value.removeprefix(start).decode(errors="replace")
    return found


def _with_variable(name: str, value: str) -> set[int]:
    return {pid for pid, found in variables(name).items() if found == value}


def _descendants(pids: set[int]) -> set[int]:
    """What these processes started, and that in turn: a program may have overwritten its environment."""
    parents = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[_PARENT])
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - pids


def orphans(program: Path) -> set[int]:
    """Processes started as `program` whose parent has died."""
    found = set()
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and command_line(int(entry.name))[:1] == [str(program)]:
            with contextlib.suppress(OSError, IndexError):
                if _stat(int(entry.name))[_PARENT] == "1":
                    found.add(int(entry.name))
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until none of them runs; those still running after `timeout_s` are returned."""
    left = {pid for pid in pids if is_alive(pid)}
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {pid for pid in left if is_alive(pid)}
    return left
