"""What one command costs: wall time, CPU time by process, bytes written; on the lab's control plane too."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes
from benchmarks.arithmetic import growth_exponent
from lab.errors import LabError
from lab.paths import Lab

_LINES_SHOWN = 15
ROLES = (
    "engine",
    "language host",
    "program",
    "Kubernetes plugin",
    "command plugin",
    "commands",
    "kubectl",
    "API server",
    "etcd",
)
"""Who spends; `commands` are what the command plugin runs: in a preview the machines' dry runs."""
_RUNS = {"command plugin": "commands"}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One command: wall seconds, CPU seconds by role, bytes that its first process wrote, lines that it printed."""

    wall_s: float
    cpu_s: Mapping[str, float]
    written: int = 0
    output: tuple[str, ...] = ()

    @property
    def cpu_total_s(self) -> float:
        return sum(self.cpu_s.values())


class Stopwatch:
    """Runs commands one at a time and reports what each cost; API server and etcd count by what they used meanwhile."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """`folder` takes the commands' output."""
        self._parts = processes.lab_programs(lab)
        self._output = folder / "output"

    def timed(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], fine: Sequence[int] = (0,)
    ) -> Cost:
        """Run a command in `folder`. Raises LabError for an exit status that is not among `fine`."""
        before = self._parts_cpu_s()
        with self._output.open("w") as file:
            started = time.monotonic()
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
            with processes.Sampler(process.pid, role, runs=_RUNS) as sampler:
                # Not reaped yet, so that its counters can still be read.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                wall_s = time.monotonic() - started
                written = processes.written_bytes(process.pid)
            process.wait()
        lines = tuple(self._output.read_text().splitlines())
        if process.returncode not in fine:
            tail = "\n".join(lines[-_LINES_SHOWN:])
            raise LabError(
                f"`{' '.join(command)}` ended with {process.returncode}:\n{tail}", fix="python -m lab status"
            )
        parts = {name: seconds - before[name] for name, seconds in self._parts_cpu_s().items()}
        return Cost(wall_s=wall_s, cpu_s={**sampler.by_role(), **parts}, written=written, output=lines)

    def _parts_cpu_s(self) -> dict[str, float]:
        names = {"kube-apiserver": "API server", "etcd": "etcd"}
        return {role: processes.total_cpu_s(self._parts.get(name, ())) for name, role in names.items()}


def role(command: str) -> str:
    """What a process below `pulumi` or `kubectl` is for, by its command line."""
    if "pulumi-language-python-exec" in command:
        return "program"
    if "pulumi-language-python" in command:
        return "language host"
    if "plugins.kubernetes" in command or "pulumi-resource-kubernetes" in command:
        return "Kubernetes plugin"
    if "pulumi-resource-command" in command:
        return "command plugin"
    return "kubectl" if "kubectl" in command else "engine"


def middle(costs: Sequence[Cost]) -> Cost:
    """The run whose CPU time is the median one."""
    return sorted(costs, key=lambda cost: cost.cpu_total_s)[len(costs) // 2]


def grows(sizes: Sequence[float], costs: Sequence[float]) -> str:
    """How `costs` grow with the number of objects, as text."""
    return f"objects^{growth_exponent(sizes, costs):.2f}"
