"""What a lab could leave on the machine that carries it."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import psutil

from lab.cluster import network, processes
from lab.paths import Lab

_LISTINGS = {
    "namespaces": "ip netns list",
    "links": "ip -brief link",
    "addresses": "ip -brief addr",
    "routes": "ip route show table all",
    "policy rules": "ip rule",
    "packet filter": "nft list ruleset",
}

State = dict[str, set[str]]


def machine_state(lab: Lab) -> State:
    """The machine's namespaces, links, addresses, routes, rules, mounts and files of /run, and the lab's processes."""
    listed = {
        what: set(subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout.splitlines())
        for what, command in _LISTINGS.items()
    }
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {
        **listed,
        "processes": {str(pid) for pid in network.namespace_processes(lab) | _in_sandboxes(lab)},
        "mounts": mounts,
        # The folder of namespaces is iproute2's, and another lab may have just made it.
        "run": {str(path) for path in Path("/run").iterdir() if path.name != "netns"},
    }


def _in_sandboxes(lab: Lab) -> set[int]:
    """Processes that have files of the lab mounted: what pods run, by another sign than `down` has."""
    pids = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if str(lab.pods) in Path(f"/proc/{pid}/mountinfo").read_text() and processes.is_alive(pid):
                pids.add(pid)
    return pids


def of_lab(lab: Lab, state: State) -> State:
    """The entries that are the lab's by their name: what is in /run has none."""
    ours = (lab.prefix, str(lab.home), str(lab.network.bridge_address), str(lab.network.uplink[1]))
    return {
        what: kept
        for what, entries in state.items()
        if (kept := {e for e in entries if what == "processes" or any(mark in e for mark in ours)})
    }


def left_behind(lab: Lab, before: State) -> State:
    """What is there now, was not there before, and is the lab's: other labs on the machine come and go meanwhile."""
    now = machine_state(lab)
    new = {what: now[what] - before[what] for what in before}
    run = {"run": new["run"]} if new["run"] else {}
    return of_lab(lab, new) | run
