"""A real vLLM on this machine's CPU, whose API server, engine core and model are a process each."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from lab.errors import LabError
from lab.free_ports import free_port
from lab.paths import CHECKOUT, Lab
from lab.vllm_cpu import environment
from lab.vllm_cpu.container import VARIABLES

MODEL = "worded"
CONTEXT_TOKENS = 8192
# Requests that run at once, and tokens of a step.
SEQUENCES, BATCHED_TOKENS = 256, 8192
_PROGRAM = Path(__file__).parent / "programs" / "worded_model.py"
_START_S = 600.0
_STEPS = "vllm:iteration_tokens_total_count"
_ENGINE = "EngineCore"


@dataclass(frozen=True, kw_only=True)
class ServedVllm:
    """One `vllm serve` with its default of one API server."""

    url: str
    server: int
    """Process id of the API server."""
    engine: int
    """Process id of the engine core, which schedules; the model is a process of its own."""

    def version(self) -> str:
        """Its own word for it."""
        return str(httpx.get(f"{self.url}/version", timeout=60).json()["version"])

    def steps(self) -> float:
        """Steps of the engine so far."""
        lines = httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{_STEPS}{{"))


@contextmanager
def served(lab: Lab, python: Path | None = None) -> Iterator[ServedVllm]:
    """The engine, ready, with a tiny model of words. Raises LabError where the lab has no vLLM, or it does not start.

    python: of an environment with another vLLM than the lab's.
    """
    python = python or environment.python_of(lab)
    with tempfile.TemporaryDirectory(prefix="front-end-") as name:
        folder = Path(name)
        weights, log, port = folder / "weights", folder / "log", free_port()
        _run([str(python), str(_PROGRAM), str(weights), str(CONTEXT_TOKENS), str(CHECKOUT / "docs")])
        command = [
            *(str(python.with_name("vllm")), "serve", str(weights), f"--served-model-name={MODEL}"),
            *("--host=127.0.0.1", f"--port={port}", f"--max-model-len={CONTEXT_TOKENS}"),
            *(f"--max-num-seqs={SEQUENCES}", f"--max-num-batched-tokens={BATCHED_TOKENS}"),
            # As the platform starts it, but for what compiles the model.
            *("--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager"),
        ]
        own = {**VARIABLES, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CACHE_ROOT": str(folder / "cache")}
        with log.open("w") as output:
            child = subprocess.Popen(
                command, env={**own, **os.environ}, stdout=output, stderr=output, start_new_session=True
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _ready(url, child, log)
            below = psutil.Process(child.pid).children(recursive=True)
            engine = next(process for process in below if _ENGINE in " ".join(process.cmdline()))
            yield ServedVllm(url=url, server=child.pid, engine=engine.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the model cannot be written: {done.stderr.strip()[-600:]}", fix="python -m lab.vllm_cpu")


def _ready(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_S
    while child.poll() is None and time.monotonic() < until:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5).status_code == httpx.codes.OK:
                return
        time.sleep(1)
    raise LabError(f"vLLM does not start: {log.read_text()[-600:]}", fix="see what its last lines name")
