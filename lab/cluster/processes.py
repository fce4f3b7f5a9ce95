"""Facts about processes from /proc, and ending them. A zombie counts as gone: nothing of it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def is_alive(pid: int) -> bool:
    """Whether this process runs."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in {"Z", "X"}


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
    """Processes with this environment variable that are in another network namespace than this process.

    A shell of the user's that has the variable too is in this one, and is not the lab's to end.
    """
    needle = f"{name}={value}".encode()
    here = (PROC / "self" / "ns" / "net").readlink()
    found = set()
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                is_marked = needle in (entry / "environ").read_bytes().split(b"\0")
                if is_marked and (entry / "ns" / "net").readlink() != here:
                    found.add(int(entry.name))
    return found


def orphans(program: Path) -> set[int]:
    """Processes started as `program` whose parent has died."""
    found = set()
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and command_line(int(entry.name))[:1] == [str(program)]:
            with contextlib.suppress(OSError, IndexError):
                if (entry / "stat").read_text().rpartition(")")[2].split()[1] == "1":
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
