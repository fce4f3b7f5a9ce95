"""Throughput of a full engine, held against a step-by-step run of the same requests, and by what must be so."""

from __future__ import annotations

import pytest

from benchmarks.packed_run import alike, run_s
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.demand import Load, Spread
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from stacks.proof.roofline import Roofline
from stacks.proof.saturation import Mix, saturation
from tests.unit.proof.proof_orders import CHAT, GENERATING, order

pytestmark = pytest.mark.row("opening 1", "001.04")


def roofline(name: str = "llama-3.3-70b", layout: Layout = Layout(tensor=4)) -> Roofline:  # noqa: B008
    return Roofline(catalogue.load(name), GPUS["h200-sxm"], layout, "bf16")


@pytest.mark.parametrize("name", ["llama-3.3-70b", "gpt-oss-120b", "deepseek-r1"])
@pytest.mark.parametrize(
    ("prompt", "answer", "slots", "budget"),
    [
        (1000, 1000, 256, 8192),
        (8000, 100, 64, 8192),
        (200, 500, 512, 2048),
        (4000, 10, 32, 4096),
        (20_000, 300, 16, 8192),
        # So few slots that the steps of a prompt are a good part of a request's stay.
        (20_000, 20, 1, 2048),
    ],
)
def test_a_long_run_of_single_steps_is_as_fast(name: str, prompt: int, answer: int, slots: int, budget: int) -> None:
    """Of twenty waves of requests, so that start and end weigh little."""
    model = roofline(name, Layout(tensor=8))
    count = 20 * slots
    stepped = count / run_s(model, alike(prompt, answer, count), slots=slots, batched_tokens=budget)
    steady = saturation(model, Mix(prompt=prompt, answer=answer), slots=slots, batched_tokens=budget)
    assert steady.requests_per_s == pytest.approx(stepped, rel=0.08)


def test_prompts_alone_fill_every_step() -> None:
    model = roofline()
    steady = saturation(model, Mix(prompt=1000, answer=1), slots=512, batched_tokens=8192)
    assert steady.prompt_tokens == pytest.approx(8192, rel=0.01)
    assert steady.requests_per_s == pytest.approx(8.192 / model.step_s(prefill=8192, reach=500), rel=0.01)


def test_long_answers_are_steps_of_all_slots() -> None:
    model = roofline()
    steady = saturation(model, Mix(prompt=1, answer=4000), slots=100, batched_tokens=8192)
    assert steady.answer_tokens_per_s == pytest.approx(100 / model.step_s(decodes=100, context=2001), rel=0.02)


def test_what_takes_more_gives_less() -> None:
    def rate(prompt: float = 2000, answer: float = 400, cached: float = 0, slots: float = 200) -> float:
        mix = Mix(prompt=prompt, answer=answer, cached=cached)
        return saturation(roofline(), mix, slots=slots, batched_tokens=8192).requests_per_s

    assert rate(prompt=500) > rate() > rate(prompt=8000)
    assert rate(answer=100) > rate() > rate(answer=2000)
    assert rate(slots=400) > rate() > rate(slots=20)
    # A cached prompt costs less than a fresh one, and more than none.
    assert rate(prompt=500) > rate(prompt=500, cached=1500) > rate(prompt=2000)


def test_long_prompts_reach_farther_than_their_mean() -> None:
    """Most tokens are in the long prompts of a load, so a token attends to more than half of a mean prompt."""
    mix = Mix.of(CHAT)
    assert mix.prompt_reach > Mix(prompt=mix.prompt, answer=1, cached=mix.cached).prompt_reach * 1.5
    alike_load = Load(requests_per_s=1, prompt_tokens=Spread(1000, 1001), answer_tokens=Spread(10, 10.1))
    assert Mix.of(alike_load).prompt_reach == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize("name", GENERATING)
def test_a_capacity_without_targets_is_near_what_a_full_engine_gives(name: str) -> None:
    """Two ways to the same limit: queues that grow for ever, and steps that are packed; or what a front end passes."""
    proof = prove(order(name, load=CHAT))
    if proof.holds:
        limit = min(proof.saturation_requests_per_s, proof.serving["front_end"].value)
        assert 0.7 < proof.capacity_requests_per_s / limit < 1.2
        assert proof.serving["saturation"].value == proof.saturation_requests_per_s


def test_without_a_load_nothing_is_saturated() -> None:
    assert prove(order("qwen3-8b")).saturation_requests_per_s == 0
