"""`python -m lab.runner`: run the pods of this lab's emulated nodes until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from lab.errors import LabError
from lab.paths import Lab
from lab.runner.api import KubeApi
from lab.runner.network import NAMESPACE_FOLDER
from lab.runner.runner import Runner

_INSIDE_FLAG = "--inside"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m lab.runner", description=__doc__)
    made.add_argument(
        "--restart-backoff-s",
        type=float,
        default=1.0,
        help="first back-off between restarts of a container; doubles up to 30 times this. The kubelet's is 10 "
        "(default: %(default)s)",
    )
    made.add_argument(_INSIDE_FLAG, action="store_true", help=argparse.SUPPRESS)
    return made


def enter_site(lab: Lab) -> None:
    """Start this command again inside the lab's network namespace, unless it is there already.

    `ip netns exec` would give the runner mounts of its own, so that its pods' namespaces were invisible to others.
    Raises LabError when the namespace does not exist.
    """
    site = NAMESPACE_FOLDER / lab.namespace
    if not site.exists():
        raise LabError(f"the lab's network namespace {lab.namespace} does not exist", fix="bring the lab up first")
    if Path("/proc/self/ns/net").stat().st_ino == site.stat().st_ino:
        return
    command = [sys.executable, "-m", "lab.runner", *sys.argv[1:], _INSIDE_FLAG]
    os.execv("/usr/bin/nsenter", ["nsenter", f"--net={site}", "--", *command])  # noqa: S606


async def follow(lab: Lab, restart_base_s: float) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await KubeApi.connect(lab.kubeconfig)
    try:
        await Runner(lab, api, restart_base_s=restart_base_s).run(stop)
    finally:
        await api.close()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    arguments = parser().parse_args()
    lab = Lab.from_environment()
    try:
        if os.geteuid() != 0:
            raise LabError("the pod runner needs root to make network namespaces", fix="run it as root")
        if not lab.kubeconfig.exists():
            raise LabError(f"no kubeconfig at {lab.kubeconfig}", fix="bring the lab up first")
        if not arguments.inside:
            enter_site(lab)
        asyncio.run(follow(lab, arguments.restart_backoff_s))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
