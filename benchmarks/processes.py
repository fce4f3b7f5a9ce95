"""CPU time by process: of everything below one process, and of the lab's long-running parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

import psutil

from lab.cluster import processes
from lab.paths import Lab

_PERIOD_S = 0.25
_PROC = Path("/proc")
_NAMESPACES = Path("/run/netns")
NOTHING: Mapping[str, str] = MappingProxyType({})


class Sampler:
    """Adds up the CPU seconds of a process and its descendants by role, while they run.

    What a process used in the last quarter of a second before it ended is lost; nothing else is. Many short processes
    would lose most of theirs: below a role of `runs` they are counted by what their parent has waited for.
    """

    def __init__(self, root: int, role: Callable[[str], str], *, runs: Mapping[str, str] = NOTHING) -> None:
        """`role` names a process by its command line, `runs` all that is below a process of a role."""
        self._root = root
        self._role = role
        self._runs = runs
        self._roles: dict[int, str] = {}
        self._cpu_s: dict[int, float] = {}
        self._waited_s: dict[int, float] = {}
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
        # A process that ended and was not waited for yet still shows what it used.
        self._look()

    def by_role(self) -> dict[str, float]:
        """CPU seconds, user and system, by role."""
        total: dict[str, float] = {}
        for pid, seconds in self._cpu_s.items():
            role = self._roles[pid]
            if role in self._runs.values():
                continue
            total[role] = total.get(role, 0.0) + seconds
            if role in self._runs:
                below = self._runs[role]
                total[below] = total.get(below, 0.0) + self._waited_s[pid]
        return total

    def _run(self) -> None:
        while True:
            self._look()
            if self._ended.wait(_PERIOD_S):
                return

    def _look(self) -> None:
        for pid, parent in _family(self._root):
            used = _used_s(pid)
            if used is None:
                continue
            # A process changes its command line once, when it goes on as another program.
            line = command_line(pid)
            if line or pid not in self._roles:
                self._roles[pid] = self._role_of(line, self._roles.get(parent, ""))
            self._cpu_s[pid], self._waited_s[pid] = used

    def _role_of(self, line: str, parent: str) -> str:
        if parent in self._runs.values():
            return parent
        return self._runs.get(parent) or self._role(line)


def cpu_s(pid: int) -> float | None:
    """CPU seconds that the process has used, its ended children not counted; None if it is gone."""
    used = _used_s(pid)
    return used[0] if used else None


def _used_s(pid: int) -> tuple[float, float] | None:
    """CPU seconds of a process itself, and of its children that it has waited for; None if it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return times.user + times.system, times.children_user + times.children_system


def command_line(pid: int) -> str:
    """The process's arguments joined by blanks; empty if it is gone."""
    return " ".join(processes.command_line(pid)).strip()


def written_bytes(pid: int) -> int:
    """Bytes that the process has handed to write calls."""
    return psutil.Process(pid).io_counters().write_chars


def lab_programs(lab: Lab) -> dict[str, list[int]]:
    """Processes in the lab's network namespaces by the name of their program; `bwrap` is each pod's outer shell."""
    by_program: dict[str, list[int]] = {}
    for pid in sorted(processes.in_networks(_NAMESPACES.glob(f"{lab.prefix}-*"))):
        name = Path(command_line(pid).partition(" ")[0]).name
        by_program.setdefault(name, []).append(pid)
    return by_program


def family_cpu_s(root: int) -> float:
    """CPU seconds of a process and all that run below it."""
    return total_cpu_s(pid for pid, _ in _family(root))


def total_cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of these processes together; those that are gone count nothing."""
    return sum(cpu_s(pid) or 0.0 for pid in pids)


def _family(root: int) -> list[tuple[int, int]]:
    """Each process and its parent, a parent before its children."""
    family, waiting = [], [(root, 0)]
    while waiting:
        pid, parent = waiting.pop()
        family.append((pid, parent))
        for task in (_PROC / str(pid) / "task").glob("*/children"):
            try:
                waiting.extend((int(child), pid) for child in task.read_text().split())
            except OSError:
                continue
    return family
