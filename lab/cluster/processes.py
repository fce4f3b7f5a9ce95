"""Facts about processes, and ending them. A zombie counts as gone: nothing of it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def is_alive(pid: int) -> bool:
    """Whether this process runs."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.Error:
        return False


def birth(pid: int) -> int | None:
    """When it was started, in ticks since the machine's start: distinguishes a process from a later one of the same id.

    Not in seconds of the day: the machine's clock can be set while a record of this lasts.
    """
    try:
        return round((psutil.Process(pid).create_time() - psutil.boot_time()) * _TICKS_PER_S)
    except psutil.Error:
        return None


def command_line(pid: int) -> list[str]:
    """argv of a process; empty when it is gone."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def memory_bytes(pid: int) -> int:
    """Resident memory without shared file pages; 0 when the process is gone."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return memory.rss - memory.shared


def in_networks(namespaces: Iterable[Path]) -> set[int]:
    """Processes in these network namespaces."""
    wanted = set()
    for namespace in namespaces:
        with contextlib.suppress(OSError):
            wanted.add(_identity(namespace))
    return {pid for pid in psutil.pids() if _network(pid) in wanted}


def marked(name: str, value: str) -> set[int]:
    """Processes started with this environment variable in another network namespace than this process's, and theirs.

    A shell of the user's that has the variable too is in this one, and is not the lab's to end.
    """
    here = {_network(os.getpid()), None}
    roots = {pid for pid, actual in variables(name).items() if actual == value and _network(pid) not in here}
    return roots | _descendants(roots)


def end_started_with(name: str, is_meant: Callable[[str], bool], *, rounds: int = 20) -> set[int]:
    """SIGKILL, until none is left, to processes whose variable has a value that is meant, and to what they started.

    Those that do not end are returned.
    """
    left: set[int] = set()
    for _ in range(rounds):
        meant = {pid for pid, value in variables(name).items() if is_meant(value)}
        left = {pid for pid in meant | _descendants(meant) if is_alive(pid)}
        if not left:
            break
        send(left, signal.SIGKILL)
        wait_gone(left, timeout_s=0.5)
    return left


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty when it is gone."""
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:
        return {}


def variables(name: str) -> dict[int, str]:
    """Value of this environment variable by process id, of all processes that were started with it."""
    return {pid: value for pid in psutil.pids() if (value := environment(pid).get(name)) is not None}


def orphans(program: Path) -> set[int]:
    """Processes started as `program` whose parent has died."""
    return {pid for pid, parent in _parents() if parent == 1 and command_line(pid)[:1] == [str(program)]}


def _parents() -> Iterator[tuple[int, int]]:
    """Each process and its parent; not by `process_iter`, which keeps a process whose id another one has by now."""
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            yield pid, psutil.Process(pid).ppid()


def _descendants(pids: set[int]) -> set[int]:
    """What these processes started, and that in turn: a program may have overwritten its environment."""
    parents = dict(_parents()) if pids else {}
    family = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family - pids


def _network(pid: int) -> tuple[int, int] | None:
    """Identity of its network namespace, of which psutil knows nothing; None when the process is gone."""
    try:
        return _identity(Path(f"/proc/{pid}/ns/net"))
    except OSError:
        return None


def _identity(namespace: Path) -> tuple[int, int]:
    status = namespace.stat()
    return status.st_dev, status.st_ino


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until none of them runs; those still running after `timeout_s` are returned.

    Not by `psutil.wait_procs`: it takes the exit status of a child, for which its starter waits.
    """
    left = {pid for pid in pids if is_alive(pid)}
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {pid for pid in left if is_alive(pid)}
    return left
