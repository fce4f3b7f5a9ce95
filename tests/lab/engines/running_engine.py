"""An engine on its own, and the requests that its behaviour is read off."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lab.free_ports import free_port
from lab.paths import Lab
from lab.vllm_cpu import environment, tiny_model_file
from lab.vllm_cpu.arguments import for_a_cpu
from tests.lab.waiting import eventually

SEQUENCES, WAITING = 4, 4
MODEL = "tiny"
# How a vLLM of the program's is made small: what the site may override.
CAP_TOKENS, CONTEXT_TOKENS = 30_000, 40_960
# Mounts the folder that follows read-only, for the program that takes its place.
_READ_ONLY = (
    *("unshare", "--mount", "sh", "-ec"),
    'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; exec "$@"',
)
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")


@dataclass(frozen=True, kw_only=True)
class RunningEngine:
    """One process that speaks OpenAI's API."""

    url: str
    child: subprocess.Popen[bytes]
    model: str
    is_simulated: bool
    hold_tokens: int
    """An answer of so many tokens takes longer than a test looks."""

    def get(self, path: str) -> httpx.Response:
        """OSError while nothing answers."""
        try:
            return httpx.get(f"{self.url}{path}", trust_env=False, timeout=10)
        except httpx.HTTPError as error:
            raise OSError from error

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = 120) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=dict(body), trust_env=False, timeout=timeout_s)

    def names(self) -> set[str]:
        """Names of its metrics."""
        lines = self.get("/metrics").text.splitlines()
        return {line.partition("{")[0].partition(" ")[0] for line in lines if line and not line.startswith("#")}

    def gauges(self) -> dict[str, float]:
        """What the picker reads."""
        lines = self.get("/metrics").text.splitlines()
        return {
            name: float(line.rpartition(" ")[2]) for name in GAUGES for line in lines if line.startswith(f"{name}{{")
        }

    def processes(self) -> list[str]:
        """Titles of its processes, less Python's tracker of shared memory and what only compiles at the start."""
        lines = subprocess.run(
            ["ps", "-ww", "--no-headers", "-o", "args", "-s", f"{self.child.pid}"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        return [line for line in lines if "VLLM::" in line or " serve " in line]

    def is_full(self) -> bool:
        gauges = self.gauges()
        return (gauges[GAUGES[0]], gauges[GAUGES[1]]) == (SEQUENCES, WAITING)

    def is_empty(self) -> bool:
        return set(self.gauges().values()) == {0.0}

    def pace(self, **settings: str) -> None:
        """Set how long the simulator takes; an engine that computes takes what it takes."""
        if self.is_simulated:
            body = {name.replace("_", "-"): value for name, value in settings.items()}
            self.post("/admin/config", body).raise_for_status()

    def chat(
        self, *, stream: bool, tokens: int = 3, path: str = "chat/completions", prompt: str = "hi"
    ) -> dict[str, Any]:
        asked = (
            {"messages": [{"role": "user", "content": prompt}]} if path == "chat/completions" else {"prompt": prompt}
        )
        return {"model": self.model, "max_tokens": tokens, "ignore_eos": True, "stream": stream, **asked}


@contextmanager
def simulator(folder: Path) -> Iterator[RunningEngine]:
    """A simulator that needs 100 s for a prompt and a second for a token."""
    # Where an installed lab's tools are; LAB_SIMULATOR for another build.
    program = os.environ.get("LAB_SIMULATOR") or str(Lab.from_environment().bin / "llm-d-inference-sim")
    port = free_port()
    arguments = [
        *(f"--model=simulator of {MODEL}", f"--served-model-name={MODEL}", f"--port={port}", "--force-dummy-tokenizer"),
        *("--mode=random", "--latency-calculator=per-token", "--prefill-overhead=100s", "--inter-token-latency=1s"),
        *(f"--max-num-seqs={SEQUENCES}", f"--max-waiting-queue-length={WAITING}", "--max-model-len=8192"),
        *("--enable-kvcache", "--kv-cache-size=64", "--block-size=16"),
    ]
    with _running([program, *arguments], {"POD_IP": "127.0.0.1"}, folder) as child:
        engine = RunningEngine(
            url=f"http://127.0.0.1:{port}", child=child, model=MODEL, is_simulated=True, hold_tokens=5_000
        )
        eventually(lambda: engine.get("/health").status_code == 200)
        yield engine


@contextmanager
def real_vllm(
    folder: Path,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    model: str,
    *,
    writer: Sequence[str] = (str(tiny_model_file()), str(CONTEXT_TOKENS)),
    further_arguments: Sequence[str] = (),
) -> Iterator[RunningEngine]:
    """vLLM with the program's own arguments, less what needs a GPU; its first argument becomes a tiny model.

    writer: the program that writes that model into a folder, its first argument, and its further one.
    """
    python = environment.python_of(Lab.from_environment())
    weights, port = folder / "weights", free_port()
    program, further = writer
    subprocess.run([python, program, weights, further], check=True, capture_output=True)
    kept, _ = for_a_cpu(arguments[1:])
    kept = [argument for argument in kept if not argument.startswith(("--port=", "--revision="))]
    command = [
        *_READ_ONLY,
        str(weights),
        str(python),
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        str(weights),
        f"--port={port}",
        *kept,
        *further_arguments,
    ]
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_CACHE_ROOT": str(folder / "cache")}
    with _running(command, {**variables, **own}, folder) as child:
        engine = RunningEngine(
            url=f"http://127.0.0.1:{port}", child=child, model=model, is_simulated=False, hold_tokens=CAP_TOKENS
        )
        eventually(lambda: engine.get("/health").status_code == 200, 600)
        yield engine


@contextmanager
def _running(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield child
    finally:
        # vLLM is several processes, of which a test may have ended all.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
