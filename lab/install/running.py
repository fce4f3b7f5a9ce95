"""Runs one long command with its output in a log file, and prints every half minute that it still runs."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.install.store import HEARTBEAT_S, say

_GRACE_S = 10.0


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    label: str,
    inherit: int | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    heartbeat_s: float = HEARTBEAT_S,
) -> int:
    """Run to the end and give the exit status; `inherit` is a lock's descriptor that the command keeps open."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            pass_fds=() if inherit is None else (inherit,),
        )
        try:
            while True:
                try:
                    return child.wait(timeout=heartbeat_s)
                except subprocess.TimeoutExpired:
                    now = (last_lines(log, 1) or [""])[0][:90]
                    say(f"    {label}: still at it after {time.monotonic() - started:.0f} s; {now}")
        finally:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(timeout=_GRACE_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def last_lines(log: Path, count: int) -> list[str]:
    """The last non-empty lines of a log file, without their line ends."""
    try:
        with log.open(errors="replace") as file:
            return list(deque((line.rstrip() for line in file if line.strip()), maxlen=count))
    except FileNotFoundError:
        return []
