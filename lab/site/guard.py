"""`python -m lab.site.guard`: starts another supervisor when the one that runs has died.

The supervisor looks after this process as after all others, so neither stays away while the other runs. Small on
purpose: it waits for a lock for as long as the lab is up.
"""

from __future__ import annotations

import fcntl
import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lab.cluster import network, processes
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab

# The pod runner ends its pods within this time.
RUNNER_GRACE_S = 40.0
_START_WITHIN_S = 30.0
_AGAIN_S = 1.0
_SUPERVISOR = "lab.site.supervisor"

log = logging.getLogger(__name__)


def status_file(lab: Lab) -> Path:
    return lab.home / "status.json"


def lock_file(lab: Lab) -> Path:
    """The running supervisor holds its lock."""
    return lab.home / "supervisor.lock"


def read_status(lab: Lab) -> dict[str, Any]:
    """The supervisor's last message; empty when there is none."""
    try:
        parsed: dict[str, Any] = json.loads(status_file(lab).read_text())
    except (OSError, ValueError):
        return {}
    return parsed


def pid(lab: Lab) -> int | None:
    """The running supervisor's process id."""
    supervisor = read_status(lab).get("supervisor")
    return supervisor if supervisor is not None and _is_supervisor(supervisor) else None


def ensure(lab: Lab) -> bool:
    """Start a supervisor unless one runs; whether one was started."""
    if pid(lab) is not None:
        return False
    lab.make_folders()
    with (lab.logs / "supervisor.log").open("ab") as output:
        subprocess.Popen(
            network.inside(lab, [sys.executable, "-m", _SUPERVISOR]),
            cwd=CHECKOUT,
            env=network.environment(lab),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_WITHIN_S
    # Not by the child: where guard and `lab up` start one each, the other's may be the one that stays.
    while pid(lab) is None:
        if time.monotonic() > deadline:
            raise LabError("the supervisor did not start", fix=f"read {lab.logs / 'supervisor.log'}")
        time.sleep(0.05)
    return True


def stop(lab: Lab) -> None:
    """Have the supervisor stop everything in order; nothing happens when none runs."""
    running = pid(lab)
    if running is not None:
        processes.send([running], signal.SIGTERM)
        processes.wait_gone([running], timeout_s=RUNNER_GRACE_S + 60)


def _is_supervisor(candidate: int) -> bool:
    return processes.is_alive(candidate) and _SUPERVISOR in processes.command_line(candidate)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    lab = Lab.from_environment()
    while True:
        with lock_file(lab).open("a") as lock:
            # Until the supervisor's death: that is what releases it.
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if ensure(lab):
                log.warning("the supervisor had died; another one runs (process %s)", pid(lab))
        except LabError as error:
            log.error("%s", error)
        time.sleep(_AGAIN_S)


if __name__ == "__main__":
    sys.exit(main())
