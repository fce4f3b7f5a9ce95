"""CPU time by process: of everything below one process, and of the lab's long-running parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from lab.paths import Lab

_TICKS = os.sysconf("SC_CLK_TCK")
_PERIOD_S = 0.25
_PROC = Path("/proc")
_NAMESPACES = Path("/run/netns")


class Sampler:
    """Adds up the CPU seconds of a process and its descendants by role, while they run.

    What a process used in the last quarter of a second before it ended is lost; nothing else is.
    """

    def __init__(self, root: int, role: Callable[[str], str]) -> None:
        """`role` names a process by its command line."""
        self._root = root
        self._role = role
        self._roles: dict[int, str] = {}
        self._cpu_s: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def by_role(self) -> dict[str, float]:
        """CPU seconds, user and system, by role."""
        total: dict[str, float] = {}
        for pid, seconds in self._cpu_s.items():
            total[self._roles[pid]] = total.get(self._roles[pid], 0.0) + seconds
        return total

    def _run(self) -> None:
        while True:
            self._look()
            if self._ended.wait(_PERIOD_S):
                return

    def _look(self) -> None:
        for pid in _family(self._root):
            seconds = cpu_s(pid)
            if seconds is None:
                continue
            # A process changes its command line once, when it goes on as another program.
            line = command_line(pid)
            if line or pid not in self._roles:
                self._roles[pid] = self._role(line)
            self._cpu_s[pid] = seconds


def cpu_s(pid: int) -> float | None:
    """CPU seconds that the process has used, its ended children not counted; None if it is gone."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS


def command_line(pid: int) -> str:
    """The process's arguments joined by blanks; empty if it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def written_bytes(pid: int) -> int:
    """Bytes that the process has handed to write calls."""
    lines = (_PROC / str(pid) / "io").read_text().splitlines()
    return int(next(line.partition(":")[2] for line in lines if line.startswith("wchar")))


def lab_programs(lab: Lab) -> dict[str, list[int]]:
    """Processes in the lab's network namespaces by the name of their program; `bwrap` is each pod's outer shell."""
    spaces = {path.stat().st_ino for path in _NAMESPACES.glob(f"{lab.prefix}-*")}
    found: dict[str, list[int]] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            inside = (entry / "ns" / "net").stat().st_ino in spaces
        except OSError:
            continue
        if inside:
            name = Path(command_line(int(entry.name)).partition(" ")[0]).name
            found.setdefault(name, []).append(int(entry.name))
    return found


def total_cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of these processes together; those that are gone count nothing."""
    return sum(cpu_s(pid) or 0.0 for pid in pids)


def _family(root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for task in (_PROC / str(pid) / "task").glob("*/children"):
            try:
                waiting.extend(int(child) for child in task.read_text().split())
            except OSError:
                continue
    return found
