"""Which processes of the host `lab down` ends: those that their parent left behind, and no others."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

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
        assert processes.orphans(program) == {orphan}
        assert processes.orphans(tmp_path / "other") == set()
    finally:
        child.kill()
        child.wait()
        processes.send({orphan}, signal.SIGKILL)
