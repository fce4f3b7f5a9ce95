"""The program that the engine starts: from anywhere, through a link, and honest about what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.paths import CHECKOUT
from lab.plugins.kubernetes import VERSION

PROGRAM = CHECKOUT / "lab" / "plugins" / "bin" / "pulumi-resource-kubernetes"


def run(program: Path, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "LAB_PYTHON": sys.executable}
    return subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.processes
def test_it_starts_anywhere_and_says_what_it_is(tmp_path: Path) -> None:
    link = tmp_path / "pulumi-resource-kubernetes"
    link.symlink_to(PROGRAM)
    assert "lab stand-in" in run(link, tmp_path, "--help")
    assert run(link, Path("/"), "--version").strip() == VERSION == "4.34.2"
