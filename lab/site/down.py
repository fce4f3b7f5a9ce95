"""`lab down`: stop the lab and leave nothing of it on the machine except the cache of built tools."""

from __future__ import annotations

import shutil
import signal

import click

from lab.cluster import network, processes
from lab.paths import Lab
from lab.progress import Progress
from lab.site import guard


@click.command()
@click.option("--keep-state", is_flag=True, help="keep the lab's folder (logs, volumes, cluster data)")
@click.pass_obj
def command(lab: Lab, *, keep_state: bool) -> int:
    take_down(lab, keep_state=keep_state)
    return 0


def take_down(lab: Lab, *, keep_state: bool = False) -> None:
    """Raises `LabError` when the lab that runs with this index belongs to another folder."""
    network.require_root()
    with network.machine_lock(lab):
        network.require_own(lab)
        progress = Progress("down", total=2)
        with progress.step("processes and network"):
            guard.stop(lab)
            network.teardown(lab)
            # It runs on the host, and outlives an engine that was killed by five minutes.
            processes.send(processes.orphans(lab.bin / "pulumi-language-python"), signal.SIGKILL)
        if keep_state:
            progress.skip("state", f"kept in {lab.home}")
        else:
            with progress.step("state"):
                _drop_state(lab)


def _drop_state(lab: Lab) -> None:
    """Everything below the lab's home but the tools: those are links into the cache, and the next `up` needs them."""
    if not lab.home.is_dir():
        return
    for entry in lab.home.iterdir():
        if entry in {lab.bin, lab.bundle}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
