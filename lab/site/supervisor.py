"""`python -m lab.site.supervisor`: keeps the lab's processes running, in the lab's own namespace.

It starts what does not run, restarts what ends (with back-off), stops what has lost the file that it needs, and writes
what it sees to a status file. The control plane comes and goes with the machine that runs it. It takes over processes
that an earlier supervisor started, so its own death stops nothing; the guard, which is one of them, starts a successor.
On SIGTERM it stops all, pods first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from lab.cluster import assigner, controlplane, credentials, kubeproxy, operator_database, processes
from lab.cluster.component import Component, own_component
from lab.machines import lab_rack
from lab.paths import CHECKOUT, Lab
from lab.registry import serving
from lab.site import guard

MACHINES = "machines"
GUARD = "guard"
HUB = "emulated-hub"
# In the lab's stack file too.
HUB_PORT = 8080
REGISTRY = "registry"
_TICK_S = 0.5
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 10.0
_STEADY_AFTER_S = 30.0
# The API server would wait for its watchers, which have nothing else to go to.
_STOP_GRACE_S = {"pod-runner": guard.RUNNER_GRACE_S, **dict.fromkeys(controlplane.STOP_ORDER, 3.0)}
_DEFAULT_STOP_GRACE_S = 10.0
# The guard first: it would start another supervisor.
_STOP_ORDER = (
    *(GUARD, "pod-runner", "assigner", "kube-proxy", MACHINES, HUB, REGISTRY, operator_database.COMPONENT),
    *controlplane.STOP_ORDER,
)

log = logging.getLogger(__name__)


def components(lab: Lab) -> list[Component]:
    """Everything that has to run, control plane first: that one once a machine has created it."""
    return [
        *(controlplane.components(lab) if controlplane.is_created(lab) else ()),
        own_component(
            lab,
            MACHINES,
            (sys.executable, "-m", "lab.machines", "run", str(lab_rack.file(lab))),
            folder=CHECKOUT,
            needs=lab_rack.file(lab),
        ),
        own_component(
            lab,
            HUB,
            (sys.executable, "-m", "lab.hub", *_hub(lab)),
            folder=CHECKOUT,
        ),
        *_registry(lab),
        *((operator_database.component(lab),) if lab.database_password.exists() else ()),
        kubeproxy.component(lab),
        own_component(
            lab,
            "assigner",
            (sys.executable, "-m", "lab.cluster.assigner"),
            folder=CHECKOUT,
            needs=credentials.kubeconfig(lab, assigner.ACCOUNT),
        ),
        own_component(
            lab,
            "pod-runner",
            (sys.executable, "-m", "lab.runner", *_mirror(lab)),
            folder=CHECKOUT,
            needs=lab.kubeconfig,
        ),
        own_component(lab, GUARD, (sys.executable, "-m", "lab.site.guard"), folder=CHECKOUT),
    ]


def _hub(lab: Lab) -> tuple[str, ...]:
    """Its arguments: what it has is in a bundle, in a folder of one model, or made up."""
    packed = ("--folder", str(lab.packed / "weights")) if lab.packed.exists() else ()
    return (f"{lab.network.hub}:{HUB_PORT}", str(lab.hub_faults), str(lab.hub_model), *packed)


def _mirror(lab: Lab) -> tuple[str, ...]:
    return ("--mirror", serving.address(lab)) if lab.packed.exists() else ()


def _registry(lab: Lab) -> tuple[Component, ...]:
    """The registry that a bundle's images are pushed to."""
    if not lab.packed.exists():
        return ()
    command = serving.command(lab.bin / "registry", serving.config_file(lab.registry))
    return (own_component(lab, REGISTRY, command, folder=lab.home),)


def grace_s(name: str) -> float:
    """How long a component has to end after it was asked to."""
    return _STOP_GRACE_S.get(name, _DEFAULT_STOP_GRACE_S)


@dataclass
class Watched:
    """What the supervisor knows of one component; times are of the monotonic clock, in seconds."""

    component: Component
    child: subprocess.Popen[bytes] | None = None
    pid: int | None = None
    starts: int = 0
    restarts: int = 0
    last_exit: int | None = None
    started: float = 0.0
    backoff_s: float = _FIRST_BACKOFF_S
    not_before: float = 0.0
    stopping_since: float | None = None

    @property
    def is_wanted(self) -> bool:
        needs = self.component.needs
        return needs is None or needs.exists()

    @property
    def state(self) -> str:
        if self.pid is not None:
            return "running" if self.stopping_since is None else "stopping"
        if not self.is_wanted and self.component.needs is not None:
            return f"waits for {self.component.needs.name}"
        return "restarting" if self.starts or self.restarts else "starting"

    def look(self, now: float) -> None:
        """See whether it runs, and work out when it may start again if it just ended."""
        if self.child is not None and self.child.poll() is not None:
            self.last_exit, self.child = self.child.returncode, None
        before, self.pid = self.pid, self.component.pid()
        if self.pid is None and self.stopping_since is not None:
            log.info("%s stopped", self.component.name)
            self.stopping_since, self.not_before, self.backoff_s = None, now, _FIRST_BACKOFF_S
        elif before is not None and self.pid is None:
            log.warning("%s ended (process %s, exit status %s)", self.component.name, before, self.last_exit)
            self.restarts += 1
            if now - self.started >= _STEADY_AFTER_S:
                self.backoff_s = _FIRST_BACKOFF_S
                self.not_before = now
            else:
                self._back_off(now)

    def stop_if_unwanted(self, now: float) -> None:
        """Ask it to end, and end it when its time is over; one that is wanted again meanwhile still ends first."""
        if self.pid is None or (self.is_wanted and self.stopping_since is None):
            return
        if self.stopping_since is None:
            self.stopping_since = now
            processes.send([self.pid], signal.SIGTERM)
        elif now - self.stopping_since > grace_s(self.component.name):
            processes.send([self.pid], signal.SIGKILL)

    def start_if_due(self, lab: Lab, now: float) -> None:
        if self.pid is not None or now < self.not_before or not self.is_wanted:
            return
        try:
            self.child = self.component.start(lab)
        except OSError as error:
            # One program that is missing or not executable must not take the others' supervisor away.
            log.error("%s cannot be started: %s", self.component.name, error)
            self._back_off(now)
            return
        self.pid, self.started = self.child.pid, now
        self.starts += 1
        log.info("%s started (process %s)", self.component.name, self.pid)

    def _back_off(self, now: float) -> None:
        self.not_before = now + self.backoff_s
        self.backoff_s = min(2 * self.backoff_s, _LONGEST_BACKOFF_S)


def renewed(watched: list[Watched], wanted: list[Component]) -> list[Watched]:
    """An entry for each component, the old one where it is watched already."""
    known = {entry.component: entry for entry in watched}
    return [known.get(component) or Watched(component=component) for component in wanted]


@dataclass
class Supervisor:
    """The loop; `stopping` is set by SIGTERM."""

    lab: Lab
    stopping: threading.Event = field(default_factory=threading.Event)
    _written: str = ""

    def run(self) -> None:
        created: tuple[int | None, bool] | None = None
        watched: list[Watched] = []
        while not self.stopping.is_set():
            now = time.monotonic()
            if created != (now_created := (controlplane.stamp(self.lab), self.lab.database_password.exists())):
                created = now_created
                watched = renewed(watched, components(self.lab))
            for entry in watched:
                entry.look(now)
                entry.stop_if_unwanted(now)
                entry.start_if_due(self.lab, now)
            self._write_status(watched)
            self.stopping.wait(_TICK_S)
        self._stop(watched)

    def _stop(self, watched: list[Watched]) -> None:
        by_name = {entry.component.name: entry for entry in watched}
        for name in _STOP_ORDER:
            pid = by_name[name].component.pid() if name in by_name else None
            if pid is not None:
                processes.send([pid], signal.SIGTERM)
                processes.send(processes.wait_gone([pid], grace_s(name)), signal.SIGKILL)
        guard.status_file(self.lab).unlink(missing_ok=True)

    def _write_status(self, watched: list[Watched]) -> None:
        content = json.dumps(
            {
                "supervisor": os.getpid(),
                "components": {
                    entry.component.name: {
                        "state": entry.state,
                        "pid": entry.pid,
                        "restarts": entry.restarts,
                        "last_exit": entry.last_exit,
                        "log": str(entry.component.log_file),
                    }
                    for entry in watched
                },
            },
            indent=2,
        )
        if content != self._written:
            draft = guard.status_file(self.lab).with_suffix(".draft")
            draft.write_text(content)
            draft.replace(guard.status_file(self.lab))
            self._written = content


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    lab = Lab.from_environment()
    lock = guard.lock_file(lab).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another supervisor runs", file=sys.stderr)
        return 1
    supervisor = Supervisor(lab)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stopping.set())
    with contextlib.closing(lock):
        supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
