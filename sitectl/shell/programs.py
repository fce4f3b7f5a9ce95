"""Runs another program, and turns its absence or failure into an error that the user can read."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from sitectl.shell.errors import SitectlError


def run(
    command: Sequence[str], *, cwd: Path, fix: str, pass_fds: Sequence[int] = ()
) -> subprocess.CompletedProcess[bytes]:
    """The program's end, whatever its status. Raises SitectlError with `fix` where it cannot be started."""
    try:
        return subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False, pass_fds=pass_fds
        )
    except FileNotFoundError:
        raise SitectlError(f"there is no {command[0]} on PATH", fix=fix) from None
    except OSError as error:
        raise SitectlError(f"{command[0]} on PATH cannot be run: {error.strerror}", fix=fix) from None
