"""What the lab knows of processes of the host, and which of them `lab down` ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.cluster import processes


def test_orphans_of_a_program_are_found_and_children_are_not(tmp_path: Path) -> None:
    program = tmp_path / "host"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    child = subprocess.Popen([program, "60"])
    # The shell ends at once, and what it started in the background loses its parent.
    started = subprocess.run(
        ["sh", "-c", f"{program} 60 >&- 2>&- & echo $!"], capture_output=True, text=True, check=True
    )
    orphan = int(started.stdout)
    try:
        deadline = time.monotonic() + 60
        # The shell prints the id before it becomes the program.
        while processes.command_line(orphan)[:1] != [str(program)]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert processes.orphans(program) == {orphan}
        assert processes.orphans(tmp_path / "other") == set()
    finally:
        child.kill()
        child.wait()
        processes.send({orphan}, signal.SIGKILL)


def test_birth_is_counted_in_the_kernels_ticks() -> None:
    """A running lab's records have this figure, and a clock that is set must not change it."""
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert processes.birth(os.getpid()) == int(started)


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace takes root")
def test_processes_of_a_network_namespace_are_found_and_no_others() -> None:
    inside = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    try:
        assert inside.stdout is not None
        inside.stdout.readline()
        namespace = Path(f"/proc/{inside.pid}/ns/net")
        assert processes.in_networks([namespace, Path("/run/netns/none")]) == {inside.pid}
        assert os.getpid() in processes.in_networks([Path("/proc/self/ns/net")])
    finally:
        inside.kill()
        inside.communicate()
