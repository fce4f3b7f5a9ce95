"""An engine that hangs while its front end answers, seen by what watches it; one that works is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from services.liveness.__main__ import StallWatch
from tests.lab.engines.running_engine import RunningEngine
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("002.11", "opening 22")

STALL_S = 30.0


class Watched:
    """The platform's watch on a running engine, with a clock that goes on when a test wants it."""

    def __init__(self, engine: RunningEngine) -> None:
        self._now = 0.0
        health = "/health/ready" if engine.is_simulated else "/health"
        self._watch = StallWatch(
            stall_s=STALL_S,
            health=f"{engine.url}{health}",
            metrics=f"{engine.url}/metrics",
            clock=lambda: self._now,
        )

    def after(self, seconds: float) -> str:
        self._now += seconds
        return self._watch.verdict()

    def moves(self) -> None:
        """Wait for a step: with it no time at all has passed without one."""
        eventually(lambda: self.after(STALL_S * 10) == "")


@contextmanager
def asked(engine: RunningEngine, prompt: str = "hi", tokens: int = 0) -> Iterator[None]:
    """A stream that ends with the block or with its engine."""
    body = engine.chat(stream=True, tokens=tokens or engine.hold_tokens, prompt=prompt)
    ends = threading.Event()

    def read() -> None:
        try:
            with httpx.stream(
                "POST", f"{engine.url}/v1/chat/completions", json=body, trust_env=False, timeout=600
            ) as answer:
                for _ in answer.iter_bytes():
                    if ends.is_set():
                        return
        except httpx.HTTPError:
            return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    eventually(lambda: engine.gauges()["vllm:num_requests_running"] >= 1)
    yield
    ends.set()


def engine_core(engine: RunningEngine) -> int:
    """Process id of vLLM's engine core."""
    listed = subprocess.run(
        ["ps", "-ww", "--no-headers", "-o", "pid,args", "-s", f"{engine.child.pid}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    (pid,) = [int(line.split()[0]) for line in listed if "VLLM::EngineCore" in line]
    return pid


@contextmanager
def frozen(engine: RunningEngine) -> Iterator[None]:
    """Its core takes no step, and everything else of it goes on.

    A simulator has one process: its next request waits for an hour between two tokens.
    """
    if engine.is_simulated:
        engine.pace(prefill_overhead="1ms", inter_token_latency="1h")
        with asked(engine):
            eventually(lambda: "vllm:time_to_first_token_seconds_count" in engine.names())
            yield
        return
    with asked(engine):
        os.kill(engine_core(engine), signal.SIGSTOP)
        yield


def test_a_core_that_hangs_is_seen_while_health_answers(own_engine: RunningEngine) -> None:
    watched = Watched(own_engine)
    with frozen(own_engine):
        # What was on its way from the core when it stopped.
        eventually(lambda: watched.after(STALL_S + 1))
        assert watched.after(1).startswith("no step for ")
        for path in ("/health", "/metrics", "/v1/models"):
            assert own_engine.get(path).status_code == 200, path
        assert own_engine.gauges()["vllm:num_requests_running"] >= 1


def test_a_core_that_works_or_idles_is_left_alone(own_engine: RunningEngine) -> None:
    own_engine.pace(prefill_overhead="1ms", inter_token_latency="20ms")
    watched = Watched(own_engine)
    for _ in range(3):
        assert watched.after(STALL_S * 10) == ""
    with asked(own_engine):
        for _ in range(20):
            watched.moves()
    eventually(lambda: own_engine.gauges()["vllm:num_requests_running"] == 0)
    for _ in range(3):
        assert watched.after(STALL_S * 10) == ""


@pytest.mark.exhaustive
def test_chunks_of_one_long_prompt_are_steps(vllm: RunningEngine) -> None:
    """vLLM counts no token before the first one of the answer. Only the use of its cache moves. A byte is a token."""
    watched = Watched(vllm)
    with asked(vllm, prompt="word " * 7_000, tokens=1):
        for _ in range(3):
            watched.moves()
