"""The checker, installed once, with a folder of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.install import install
from lab.paths import Lab
from tests.lab.talos_checker.checking import Checker


@pytest.fixture(scope="module")
def program() -> Path:
    lab = Lab.from_environment()
    install(lab, ["talos-checker"])
    return lab.bin / "talos-checker"


@pytest.fixture
def checker(program: Path, tmp_path: Path) -> Checker:
    return Checker(program, tmp_path)
