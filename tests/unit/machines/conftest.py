"""A rack that was never started, and one whose cluster runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.machines.emulated_rack import Bench, new_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A machine without GPUs and one with, both in maintenance mode."""
    made = new_bench(tmp_path / "machines", "infra", "hgx-h200")
    with made.rack:
        for name in made.rack.machines:
            made.wait_stage(name, "maintenance")
        yield made


@pytest.fixture
def running(bench: Bench) -> Bench:
    """A control plane `cp`, bootstrapped, and an HGX worker `gpu`, both registered."""
    bench.bring_up()
    return bench
