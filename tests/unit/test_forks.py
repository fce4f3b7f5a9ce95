"""Forks of one collection run each test once, report every failure, and lose no test in silence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
COUNTED = """
import os
from pathlib import Path
import pytest

Path(__file__).with_name(f"collected-{os.getpid()}").touch()

@pytest.fixture(scope="module")
def opened():
    yield
    Path(__file__).with_name(f"closed-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(50))
def test_one(opened, number):
    Path(__file__).with_name(f"ran-{number}").symlink_to(f"closed-{os.getpid()}")
    assert number != 30
    if number == DIES_AT:
        os._exit(3)
"""


def ran(folder: Path, dies_at: int) -> tuple[int, dict[str, int]]:
    """Exit status of pytest, and how many tests came to which end."""
    (folder / "test_counted.py").write_text(COUNTED.replace("DIES_AT", str(dies_at)))
    options = ("-q", "-p", "tests.forks", "--forks", "3", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ends = re.findall(r"(\d+) (passed|failed)", done.stdout.splitlines()[-1])
    return done.returncode, {end: int(count) for count, end in ends}


def test_each_test_runs_once_out_of_one_collection(tmp_path: Path) -> None:
    assert ran(tmp_path, dies_at=-1) == (1, {"failed": 1, "passed": 49})
    assert len(list(tmp_path.glob("collected-*"))) == 1
    links = list(tmp_path.glob("ran-*"))
    assert len(links) == 50
    assert all(link.exists() for link in links), "a fork ends its fixtures"


def test_tests_of_a_fork_that_dies_have_failed(tmp_path: Path) -> None:
    status, ends = ran(tmp_path, dies_at=7)
    assert status == 1
    assert ends["failed"] >= 2 and sum(ends.values()) == 50
