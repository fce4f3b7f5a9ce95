"""What vLLM's API server takes of a core for each request and token: its own process, beside those of the engine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import click

from benchmarks import processes
from benchmarks.arithmetic import proportions
from benchmarks.client import Connection
from benchmarks.report import Cell, Result, Table, note
from benchmarks.served_vllm import BATCHED_TOKENS, MODEL, SEQUENCES, ServedVllm, served
from lab.paths import CHECKOUT, Lab

HELP = "CPU time of vLLM's API server for each request and token; takes the vLLM of `python -m lab.vllm_cpu`"
NEEDS_LAB = False
KINDS = ("request", "prompt token", "answer token", "piece", "step")
"""What an API server's time is fitted to. A piece is an event of a stream: a token, or several where the server is
behind (vllm/v1/engine/output_processor.py, RequestOutputCollector)."""
# Characters of a prompt for each of its tokens.
_TOKEN_CHARACTERS = 3.6
_IDLE_S = 5.0
_PAGES = CHECKOUT / "docs"

PARAMETERS = (
    click.Option(
        ["--front-end-rounds"], type=int, default=3, show_default=True, help="front_end: rounds of each shape"
    ),
    click.Option(
        ["--front-end-python"],
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="front_end: Python of an environment with another vLLM; the record is named after its version",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Requests that are alike, of a client that keeps so many under way."""

    prompt: int
    """Tokens, about; the engine counts them."""
    answer: int
    at_once: int
    requests: int
    streamed: bool = True

    @property
    def words(self) -> str:
        return f"{self.prompt:,} / {self.answer:,} {'streamed' if self.streamed else 'whole'}, {self.at_once} at once"


SHAPES = (
    Shape(prompt=128, answer=4, at_once=1, requests=100),
    Shape(prompt=128, answer=4, at_once=16, requests=400),
    Shape(prompt=128, answer=4, at_once=128, requests=800),
    Shape(prompt=128, answer=128, at_once=1, requests=8),
    Shape(prompt=128, answer=128, at_once=16, requests=64),
    Shape(prompt=128, answer=128, at_once=128, requests=256),
    Shape(prompt=1024, answer=16, at_once=1, requests=40),
    Shape(prompt=1024, answer=16, at_once=16, requests=160),
    Shape(prompt=1024, answer=16, at_once=128, requests=256),
    Shape(prompt=6000, answer=4, at_once=8, requests=64),
    Shape(prompt=128, answer=4, at_once=16, requests=400, streamed=False),
    Shape(prompt=128, answer=128, at_once=16, requests=64, streamed=False),
    Shape(prompt=128, answer=128, at_once=128, requests=256, streamed=False),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One round of one shape."""

    shape: Shape
    prompt_tokens: int
    pieces: int
    """Of all streams."""
    steps: float
    wall_s: float
    server_s: float
    """CPU seconds of the API server, without what it takes when idle."""
    engine_s: float
    """Of the engine core, which polls while the model computes: no measure of what scheduling takes."""

    @property
    def counts(self) -> tuple[float, ...]:
        """By `KINDS`."""
        requests = self.shape.requests
        return (float(requests), self.prompt_tokens, float(requests * self.shape.answer), self.pieces, self.steps)


def run(lab: Lab, *, front_end_rounds: int, front_end_python: Path | None) -> Result:
    """Raises LabError where the lab has no vLLM, or a request fails."""
    with served(lab, front_end_python) as vllm:
        texts, version = _texts(), vllm.version()
        _measure(vllm, Shape(prompt=128, answer=16, at_once=16, requests=64), texts, 0.0)
        idle = _idle(vllm)
        rounds = []
        for number in range(front_end_rounds):
            for shape in SHAPES:
                note(f"[round {number + 1}/{front_end_rounds}] {shape.words}")
                rounds.append(_measure(vllm, shape, texts, idle))
    prices = prices_of(rounds)
    lines = [_line([measured for measured in rounds if measured.shape == shape], prices) for shape in SHAPES]
    return Result(
        benchmark=f"front_end_{version.partition('+')[0]}" if front_end_python else "front_end",
        question="What does vLLM's API server, one process, take of a core for each request and each token?",
        conditions={
            "engine": f"vLLM {version} on a CPU, one API server, a Llama of one layer with 16,384 words",
            "served_with": f"{SEQUENCES} sequences, {BATCHED_TOKENS:,} tokens of a step, chat completions",
            "load": "closed loop on kept connections; CPU time of the process, user and system",
            "rounds": front_end_rounds,
            "idle": f"{100 * idle:.1f} % of a core, taken off",
            "cores_shared_by": f"API server, engine with the model, and client share {os.cpu_count()} cores",
        },
        tables=[
            Table(title="By shape, median of its rounds; CPU ms of the API server per request", rows=lines),
            Table(
                title="Fitted: CPU microseconds of the API server; relative errors, least squares",
                rows=[{"one": kind, "us": round(1e6 * price, 2)} for kind, price in prices.items()],
            ),
        ],
        findings=findings(prices, lines),
    )


def prices_of(rounds: Sequence[Measured]) -> dict[str, float]:
    """CPU seconds of the API server for one of each kind."""
    prices = proportions([measured.counts for measured in rounds], [measured.server_s for measured in rounds])
    return dict(zip(KINDS, prices, strict=True))


def findings(prices: dict[str, float], lines: Sequence[dict[str, Cell]]) -> list[str]:
    """Sentences for the record: the limits that follow, and how well they fit."""
    token = prices["answer token"] + prices["piece"]
    short = prices["request"] + 128 * prices["prompt token"] + 4 * token
    chat = prices["request"] + 128 * prices["prompt token"] + 128 * token
    errors = sorted(abs(float(line["fitted / measured"] or 0.0) - 1) for line in lines)
    return [
        f"128 / 4 tokens, streamed: {1e3 * short:.2f} ms, so one API server passes at most {1 / short:.0f} requests/s.",
        f"128 / 128 tokens, streamed: {1e3 * chat:.2f} ms, so at most {1 / chat:.0f} requests/s, "
        f"{128 / chat:,.0f} tokens/s.",
        f"The fit is within {100 * errors[-1]:.0f} % of every shape, and within {100 * median(errors):.0f} % of half.",
    ]


def _line(rounds: Sequence[Measured], prices: dict[str, float]) -> dict[str, Cell]:
    shape = rounds[0].shape
    per_request = [1e3 * measured.server_s / shape.requests for measured in rounds]
    fitted = [
        1e3 * sum(a * b for a, b in zip(measured.counts, prices.values(), strict=True)) / shape.requests
        for measured in rounds
    ]
    return {
        "prompt / answer": shape.words,
        "prompt tokens": round(median(measured.prompt_tokens for measured in rounds) / shape.requests),
        "requests/s": round(median(shape.requests / measured.wall_s for measured in rounds), 1),
        "pieces per request": round(median(measured.pieces for measured in rounds) / shape.requests, 1),
        "steps per request": round(median(measured.steps for measured in rounds) / shape.requests, 2),
        "API server ms": round(median(per_request), 3),
        "least": round(min(per_request), 3),
        "most": round(max(per_request), 3),
        "fitted ms": round(median(fitted), 3),
        "fitted / measured": round(median(fitted) / median(per_request), 2),
        "engine core ms, polling included": round(
            median(1e3 * measured.engine_s for measured in rounds) / shape.requests, 2
        ),
    }


def _measure(vllm: ServedVllm, shape: Shape, texts: Texts, idle: float) -> Measured:
    steps = vllm.steps()
    before, began = _cpu_s(vllm), time.monotonic()
    sent = asyncio.run(_load(vllm, shape, texts))
    wall_s, after = time.monotonic() - began, _cpu_s(vllm)
    return Measured(
        shape=shape,
        prompt_tokens=sum(prompt for prompt, _ in sent),
        pieces=sum(pieces for _, pieces in sent),
        steps=vllm.steps() - steps,
        wall_s=wall_s,
        server_s=after[0] - before[0] - idle * wall_s,
        engine_s=after[1] - before[1],
    )


async def _load(vllm: ServedVllm, shape: Shape, texts: Texts) -> list[tuple[int, int]]:
    """Send all requests of a shape; prompt tokens and pieces of each."""
    left, sent = iter(range(shape.requests)), list[tuple[int, int]]()

    async def client() -> None:
        async with Connection(f"{vllm.url}/v1", {}) as connection:
            for _ in left:
                body = _body(shape, texts)
                if shape.streamed:
                    answer = await connection.stream(body)
                    sent.append((answer.prompt_tokens, answer.pieces))
                else:
                    whole = await connection.whole(body)
                    sent.append((whole["usage"]["prompt_tokens"], 0))

    await asyncio.gather(*(client() for _ in range(shape.at_once)))
    return sent


class Texts:
    """Prompts that differ from the first word on, so that none is in a cache."""

    def __init__(self, text: str) -> None:
        self._text, self._number = text, count(1)

    def of(self, characters: int) -> str:
        number = next(self._number)
        start = number * 7919 % (len(self._text) - characters)
        return f"{number} {self._text[start : start + characters]}"


def _texts() -> Texts:
    return Texts("".join(path.read_text() for path in sorted(Path(_PAGES).rglob("*.md"))))


def _body(shape: Shape, texts: Texts) -> dict[str, object]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": texts.of(round(shape.prompt * _TOKEN_CHARACTERS))}],
        "max_tokens": shape.answer,
        "ignore_eos": True,
    }


def _cpu_s(vllm: ServedVllm) -> tuple[float, float]:
    return processes.cpu_s(vllm.server) or 0.0, processes.cpu_s(vllm.engine) or 0.0


def _idle(vllm: ServedVllm) -> float:
    """Share of a core that the API server takes without requests."""
    before = _cpu_s(vllm)[0]
    time.sleep(_IDLE_S)
    return (_cpu_s(vllm)[0] - before) / _IDLE_S
