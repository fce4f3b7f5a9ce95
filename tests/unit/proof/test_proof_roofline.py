"""Step times against recorded kernel timings, in a band that a wrong constant leaves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.recorded_steps import held_out_steps, recorded_steps
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.layouts import Layout
from stacks.proof.roofline import CALIBRATION, KERNELS, Calibration, Roofline

pytestmark = pytest.mark.row("opening 1", "001.04")


def distances(calibration: Calibration) -> list[float]:
    """How far each recorded step is away, as a factor of at least 1, ascending."""
    built: dict[tuple[str, str, Layout], Roofline] = {}
    factors = []
    for step in recorded_steps():
        key = (step.gpu, step.repository, step.layout)
        if key not in built:
            built[key] = step.roofline(calibration)
        factors.append(math.exp(abs(math.log(step.derived_s(built[key]) / step.seconds))))
    return sorted(factors)


def test_the_roofline_keeps_the_stated_band() -> None:
    """322 steps of 11 models: half within 1.1, nine of ten within 1.3, all within 1.8."""
    factors = distances(KERNELS)
    assert len(factors) > 300
    assert factors[len(factors) // 2] < 1.1
    assert factors[len(factors) * 9 // 10] < 1.3
    assert factors[-1] < 1.8


@pytest.mark.parametrize(
    ("gpu", "half", "most"),
    [("h100-sxm", 1.1, 1.3), ("h200-sxm", 1.1, 1.3), ("a100-80gb", 1.2, 1.4), ("b200", 1.25, 2.0), ("l40s", 1.4, 2.0)],
)
def test_steps_that_nothing_was_fitted_to_are_close_too(gpu: str, half: float, most: float) -> None:
    """584 steps: half and nine of ten within these factors. On H100 and H200, of other models and caches of 8 bits."""
    factors = sorted(
        math.exp(abs(math.log(step.derived_s(step.roofline(KERNELS)) / step.seconds)))
        for step in held_out_steps()
        if step.gpu == gpu
    )
    assert len(factors) > 20
    assert factors[len(factors) // 2] < half
    assert factors[len(factors) * 9 // 10] < most


def spoilt(name: str) -> Calibration:
    value = getattr(KERNELS, name)
    wrong: Any = value * 3 if name.endswith(("_s", "_vectors", "_imbalance")) else None
    if isinstance(value, dict):
        wrong = {key: share / 1.8 for key, share in value.items()}
    return replace(KERNELS, **{name: value / 3 if wrong is None else wrong})


@pytest.mark.parametrize(
    "name",
    [
        "compute",
        "bandwidth",
        "expert_compute",
        "expert_bandwidth",
        "cache_bandwidth",
        "attention_compute",
        "expert_imbalance",
        "link",
        "layer_s",
        "block_layer_s",
        "sparse_layer_s",
        "sparse_token_s",
        "collective_s",
        "step_s",
    ],
)
def test_every_constant_is_held_by_the_recorded_steps(name: str) -> None:
    """A constant that is wrong by a factor leaves the band: the mean distance grows."""
    good, bad = distances(KERNELS), distances(spoilt(name))
    assert sum(bad) / len(bad) > 1.01 * sum(good) / len(good)


@pytest.mark.parametrize("name", catalogue.names())
def test_more_work_never_takes_less_time(name: str) -> None:
    model = catalogue.load(name)
    roofline = Roofline(model, GPUS["h200-sxm"], Layout(tensor=2), "fp8")
    times = [roofline.step_s(prefill=size, reach=size / 2) for size in (1, 64, 512, 4096, 32_768)]
    assert times == sorted(times)
    decode = [roofline.step_s(decodes=batch, context=4096) for batch in (1, 8, 64, 512)]
    assert decode == sorted(decode)
    longer = [roofline.step_s(decodes=8, context=context) for context in (128, 4096, 32_768, 131_072)]
    assert longer == sorted(longer)
    assert roofline.step_s() == 0


def test_experts_are_read_as_tokens_touch_them() -> None:
    """One token reads 4 of 128 experts, hundreds read all: gpt-oss-120b decodes 256 in far less than 256 times."""
    roofline = Roofline(catalogue.load("gpt-oss-120b"), GPUS["h200-sxm"], Layout(), "fp8")
    single, many = (roofline.step_s(decodes=batch, context=1000) for batch in (1, 256))
    assert 4 * single < many < 20 * single


def test_a_window_and_an_indexer_bound_what_a_decode_step_reads() -> None:
    """From 32 k to 128 k tokens a sparse or windowed model slows less than one that reads everything."""

    def slowdown(name: str) -> float:
        roofline = Roofline(catalogue.load(name), GPUS["h200-sxm"], Layout(tensor=8), "bf16")
        return roofline.step_s(decodes=64, context=131_072) / roofline.step_s(decodes=64, context=32_768)

    assert slowdown("deepseek-v3.2") < slowdown("deepseek-r1")
    assert slowdown("gpt-oss-120b") < slowdown("qwen3-30b-a3b-fp8")


@pytest.mark.parametrize("gpu", ["a100-80gb", "l40s", "l4", "h100-sxm", "b200"])
def test_sinks_slow_prompts_where_no_fast_kernel_takes_them(gpu: str) -> None:
    """Of 32,000 tokens to a prompt of 32,000, half of all pairs; on Hopper and later FlashAttention 3 takes sinks."""
    model, tokens = catalogue.load("gpt-oss-20b"), 32_000
    plain = model.model_copy(update={"attention_sinks": False})
    with_sinks, without = (
        Roofline(kind, GPUS[gpu], Layout(), "bf16").step_s(prefill=tokens, reach=tokens / 2) for kind in (model, plain)
    )
    pairs = tokens * 12 * 4 * 64 * 64 * (tokens / 2 + 128) / GPUS[gpu].flops["bf16"]
    slower = pairs * (1 / CALIBRATION.sink_compute - 1 / CALIBRATION.attention_compute) * CALIBRATION.engine
    older = GPUS[gpu].family in ("ampere", "ada-lovelace")
    assert with_sinks - without == pytest.approx(slower if older else 0.0, rel=1e-6)
    # As far as the published runs of vLLM 0.11 on A100 were from what FlashAttention would have taken.
    assert not older or with_sinks > 1.6 * without


def test_newer_hardware_is_faster_and_fp8_units_count() -> None:
    model = catalogue.load("qwen3-32b-fp8")

    def prompt(gpu: str) -> float:
        return Roofline(model, GPUS[gpu], Layout(), "bf16").step_s(prefill=4096, reach=2048)

    assert prompt("b200") < prompt("h200-sxm") <= prompt("h100-sxm") < prompt("a100-80gb") < prompt("l4")


def test_a_network_between_ranks_costs() -> None:
    """Sixteen ranks on one rack of NVLink are faster than on two nodes with a network between them."""
    model, layout = catalogue.load("llama-3.1-405b"), Layout(tensor=16)
    rack, nodes = GPUS["gb200"], GPUS["gb200"].model_copy(update={"link_domain": 8})
    steps = [Roofline(model, gpu, layout, "fp8").step_s(prefill=4096, reach=2048) for gpu in (rack, nodes)]
    assert steps[0] < steps[1]
