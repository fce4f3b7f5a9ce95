"""What is made of a measured API server, and the run that it lets into a scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.front_end import KINDS, SHAPES, Measured, findings, prices_of
from benchmarks.packed_run import alike, run_s
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.front_end import CHUNK_STREAMS, FRONT_END
from stacks.proof.layouts import Layout
from stacks.proof.roofline import Roofline

pytestmark = pytest.mark.row("opening 1", "001.04")

PRICES = dict(zip(KINDS, (2e-3, 3e-6, 12e-6, 65e-6, 600e-6), strict=True))
ROOFLINE = Roofline(catalogue.load("llama-3.2-1b"), GPUS["h100-sxm"], Layout(), "bf16")


def rounds() -> list[Measured]:
    """Of a server that takes these times exactly."""
    made = []
    for shape in SHAPES:
        pieces = shape.requests * shape.answer if shape.streamed else 0
        steps = shape.requests * shape.answer / min(shape.at_once, 24)
        bare = Measured(
            shape=shape,
            prompt_tokens=shape.requests * shape.prompt,
            pieces=pieces,
            steps=steps,
            wall_s=1.0,
            server_s=1.0,
            engine_s=1.0,
        )
        taken = sum(count * price for count, price in zip(bare.counts, PRICES.values(), strict=True))
        made.append(replace(bare, server_s=taken))
    return made


def test_times_are_found_again() -> None:
    assert prices_of(rounds()) == pytest.approx(PRICES)


def test_the_limits_follow_from_them() -> None:
    sentences = findings(PRICES, [{"fitted / measured": 1.1}, {"fitted / measured": 0.7}, {"fitted / measured": 1.0}])
    assert "2.69 ms, so one API server passes at most 371 requests/s" in sentences[0]
    assert "12.24 ms, so at most 82 requests/s, 10,458 tokens/s" in sentences[1]
    assert "within 30 % of every shape, and within 10 % of half" in sentences[2]


def run(requests: int, prompt: int, answer: int, *, door: bool = True) -> float:
    lengths = alike(prompt, answer, requests)
    return run_s(ROOFLINE, lengths, slots=256, batched_tokens=8192, front_end=FRONT_END if door else None)


def test_a_run_is_no_faster_than_its_front_end() -> None:
    """A thousand short requests that the engine answers in less time than they take to pass."""
    least = 1000 * FRONT_END.least_s(128, 4, 256)
    assert run(1000, 128, 4, door=False) < least
    assert least < run(1000, 128, 4) < 1.3 * least


def test_a_run_of_long_answers_is_the_engines() -> None:
    """What passes while the engine computes costs nothing; a start does, and the last step's pieces."""
    bare = run(100, 1000, 2000, door=False)
    assert bare < run(100, 1000, 2000) < 1.15 * bare


def test_a_server_that_is_behind_puts_tokens_together_for_as_many_streams_as_a_chunk_has() -> None:
    """One H200, 840 streams: 0.995 pieces per token, and 87.2 requests/s of 128 / 128 (benchmarks/gpu)."""
    few, many = (run(count, 128, 128) / count for count in (CHUNK_STREAMS, 2 * CHUNK_STREAMS))
    assert few < 0.7 * FRONT_END.streamed_s(128, 128, 128)
    assert many == pytest.approx(FRONT_END.streamed_s(128, 128, 128))


def test_one_request_passes_is_computed_and_written() -> None:
    more = run(1, 500, 1) - run(1, 500, 1, door=False)
    assert more == pytest.approx(FRONT_END.streamed_s(500, 1, 1) + FRONT_END.step_s, rel=1e-6)
