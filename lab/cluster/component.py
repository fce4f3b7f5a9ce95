"""One long-lived process of the lab: how to start it, and where its process id and its log are kept.

The process id file and /proc are the whole record, so a new supervisor takes over what an old one started.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.cluster import network, processes
from lab.paths import Lab


@dataclass(frozen=True, kw_only=True)
class Component:
    """A process of the lab; it runs only while the file `needs` is there.

    starter: a command that becomes the process, whose arguments are then `argv`.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    pid_file: Path
    log_file: Path
    environment: tuple[tuple[str, str], ...] = ()
    needs: Path | None = None
    starter: tuple[str, ...] = ()

    def pid(self) -> int | None:
        """Process id when it runs."""
        try:
            pid = int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None
        # Empty for a moment while a process that has just been started turns into its program.
        own: tuple[list[str], ...] = ([], list(self.argv), [*self.starter, *self.argv])
        return pid if processes.is_alive(pid) and processes.command_line(pid) in own else None

    def start(self, lab: Lab) -> subprocess.Popen[bytes]:
        """Start it in the namespace of the caller, which has to reap it."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            child = subprocess.Popen(
                [*self.starter, *self.argv],
                cwd=self.folder,
                env={**network.environment(lab), **dict(self.environment)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid_file.write_text(str(child.pid))
        return child


def own_component(lab: Lab, name: str, argv: tuple[str, ...], *, folder: Path, needs: Path | None = None) -> Component:
    """A component that kwokctl does not know: its files are in the lab's folder."""
    return Component(
        name=name,
        argv=argv,
        folder=folder,
        pid_file=lab.home / "pids" / f"{name}.pid",
        log_file=lab.logs / f"{name}.log",
        needs=needs,
    )
