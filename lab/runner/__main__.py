"""`python -m lab.runner`: run the pods of this lab's emulated nodes until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import click

from floor import command_line
from lab.errors import LabError
from lab.paths import Lab
from lab.runner.api import KubeApi
from lab.runner.network import NAMESPACE_FOLDER
from lab.runner.pulling import ImageSource, InstalledPrograms, Mirror
from lab.runner.runner import Runner

_INSIDE_FLAG = "--inside"


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


def image_source(lab: Lab, mirror: str) -> ImageSource:
    """The lab's own programs, or with a mirror images out of that alone."""
    if not mirror:
        return InstalledPrograms(tools=lab.bin)
    return Mirror(address=mirror, crane=lab.bin / "crane", store=lab.images, tools=lab.bin)


async def follow(lab: Lab, images: ImageSource, restart_base_s: float) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await KubeApi.connect(lab.kubeconfig)
    try:
        await Runner(lab, api, images=images, restart_base_s=restart_base_s).run(stop)
    finally:
        await api.close()


@click.command(cls=command_line.Command, help=__doc__)
@click.option(
    "--restart-backoff-s",
    type=float,
    default=1.0,
    show_default=True,
    help="first back-off between restarts of a container; doubles up to 30 times this. The kubelet's is 10",
)
@click.option(
    "--mirror",
    metavar="HOST:PORT",
    default="",
    help="registry out of which every image is pulled, under its own path and without a fallback; the default pulls "
    "nothing, and runs the lab's own programs",
)
@click.option(_INSIDE_FLAG, is_flag=True, hidden=True)
def command(*, restart_backoff_s: float, mirror: str, inside: bool) -> int:
    lab = Lab.from_environment()
    if os.geteuid() != 0:
        raise LabError("the pod runner needs root to make network namespaces", fix="run it as root")
    if not lab.kubeconfig.exists():
        raise LabError(f"no kubeconfig at {lab.kubeconfig}", fix="bring the lab up first")
    if not inside:
        enter_site(lab)
    asyncio.run(follow(lab, image_source(lab, mirror), restart_backoff_s))
    return 0


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        return command_line.run(command, name="python -m lab.runner")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
