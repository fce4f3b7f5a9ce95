"""The load test of a new node with the PyTorch that vLLM comes with: its processes, on a CPU in place of GPUs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.monitoring.load_test import daemon_set
from lab.paths import CHECKOUT, Lab
from lab.vllm_cpu import environment
from services.load_test.verdict import Floors, LoadTest

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 25")]

REACHABLE = Floors(tflops=0, memory_gb_s=0, all_reduce_gb_s=0)
SMALL = ("--matrix=128", "--mib=8")


def run(message: Path, floors: Floors, *more: str) -> subprocess.CompletedProcess[str]:
    """Its container's command, with a Python that has torch, for less of everything."""
    pod = daemon_set(LoadTest(name="cpu", gpus=2, floors=floors), "vllm")["spec"]["template"]["spec"]
    container: dict[str, Any] = pod["initContainers"][0]
    program: list[str] = container["command"] + container["args"]
    given = [*program[1:], *SMALL, "--device=cpu", f"--message={message}", *more]
    return subprocess.run(
        [environment.python_of(Lab.from_environment()), *given],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_it_passes_fails_by_its_floors_and_ends_a_process_that_hangs(tmp_path: Path) -> None:
    message = tmp_path / "message"
    passed = run(message, REACHABLE, "--seconds=1")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert message.read_text() == passed.stdout.strip()
    assert passed.stdout.startswith("2 GPUs: at least ")
    slow = run(message, Floors(tflops=1e6, memory_gb_s=0, all_reduce_gb_s=0), "--seconds=1")
    assert slow.returncode == 1
    assert "GPU 1: 0 TFLOP/s bf16, below 1000000" in message.read_text()
    assert run(message, REACHABLE, "--seconds=300", "--patience=5").returncode == 1
    assert "one hangs" in message.read_text()
    assert run(message, REACHABLE, "--seconds=1", "--mib=1000000000").returncode == 1
    assert "allocate memory" in message.read_text(), "a process that fails names its reason"
