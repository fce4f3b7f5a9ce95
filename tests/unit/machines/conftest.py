"""A rack that was never started, and one whose cluster runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.machines.power import Session
from tests.unit.machines.emulated_rack import HOUR_S, Bench, new_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A machine without GPUs and one with, both in maintenance mode."""
    made = new_bench(tmp_path / "machines", "infra", "hgx-h200")
    with made.rack:
        for name in made.rack.machines:
            made.wait_stage(name, "maintenance")
        yield made


@pytest.fixture
def hour(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Whatever a machine waits HOUR_S for happens when this is set."""
    over = threading.Event()
    plain = Session.wait

    def wait(session: Session, seconds: float) -> None:
        while seconds >= HOUR_S and not session.is_over and not over.wait(0.05):
            pass
        plain(session, 0 if seconds >= HOUR_S else seconds)

    monkeypatch.setattr(Session, "wait", wait)
    yield over
    over.set()


@pytest.fixture
def running(bench: Bench) -> Bench:
    """A control plane `cp`, bootstrapped, and an HGX worker `gpu`, both registered."""
    bench.bring_up()
    return bench
