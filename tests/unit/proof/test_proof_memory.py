"""Cache bytes against published logs and the engine's formulas, and what fits."""

from __future__ import annotations

import pytest

from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.layouts import Layout, candidates
from stacks.proof.memory import (
    BLOCK_TOKENS,
    KvDtype,
    cache_of,
    cache_room,
    longest_request,
    state_bytes,
    token_bytes,
)

pytestmark = pytest.mark.row("opening 1", "001.18")

GIB = 2**30
ONE = Layout()


@pytest.mark.parametrize(
    ("name", "dtype", "bytes_per_token"),
    [
        ("glm-5.1-fp8", "bf16", 89_856 + 10_296),
        ("glm-5.1-fp8", "fp8", 51_168 + 10_296),
        ("deepseek-v3.2", "fp8", 40_016 + 8_052),
        ("deepseek-r1", "bf16", 70_272),
        ("qwen3-235b-a22b-fp8", "bf16", 192_512),
        ("qwen3-32b-fp8", "bf16", 262_144),
        ("qwen3-32b-fp8", "fp8", 131_072),
        ("qwen3-30b-a3b-fp8", "fp8", 49_152),
        ("qwen3-8b", "bf16", 147_456),
        ("llama-3.1-405b", "bf16", 516_096),
        ("llama-3.3-70b", "bf16", 327_680),
        ("llama-3.1-8b", "bf16", 131_072),
        ("mixtral-8x22b", "bf16", 229_376),
        ("minimax-m2.5", "bf16", 253_952),
        ("gpt-oss-120b", "bf16", 73_728),
        ("qwen3.5-122b-a10b", "bf16", 24_576),
    ],
)
def test_bytes_of_a_token(name: str, dtype: KvDtype, bytes_per_token: int) -> None:
    """The capacity table of the engine's formulas, over all layers, before any window is full."""
    assert cache_of(catalogue.load(name), ONE, dtype).per_token == bytes_per_token


def test_a_published_log_of_kimi() -> None:
    """InferenceX issue 1587: 576 x 61 bytes x 262,144 tokens are 8.58 GiB."""
    cache = cache_of(catalogue.load("kimi-k2.5"), Layout(tensor=8), "fp8")
    assert cache.request_bytes(262_144) / GIB == pytest.approx(8.58, abs=0.005)


def test_a_published_log_of_mistral() -> None:
    """kaito issue 2132: 22.5 GiB for 1,048,576 tokens; with 17.39 GiB at hand at most 810,208 tokens."""
    cache = cache_of(catalogue.load("mistral-small-4"), Layout(tensor=2), "bf16")
    assert cache.per_token == 23_040
    assert cache.request_bytes(1_048_576) / GIB == 22.5
    assert longest_request(cache, 17.39 * GIB) == pytest.approx(810_208, rel=0.001)


def test_half_of_gpt_oss_stops_growing() -> None:
    """36,864 bytes per token grow; the other half is bounded by its window."""
    cache = cache_of(catalogue.load("gpt-oss-120b"), ONE, "bf16")
    assert cache.growing == 36_864
    assert cache.request_bytes(100_000) == 36_864 * 100_000 + 36_864 * (128 + BLOCK_TOKENS)


def test_heads_are_shared_until_there_are_none_and_latents_never() -> None:
    qwen, glm = catalogue.load("qwen3-32b-fp8"), catalogue.load("glm-5.1-fp8")
    sizes = [cache_of(qwen, Layout(tensor=ranks), "fp8").per_token for ranks in (1, 2, 8, 16)]
    assert sizes == [131_072, 65_536, 16_384, 16_384]
    assert cache_of(glm, Layout(tensor=8), "fp8") == cache_of(glm, ONE, "fp8")


def test_states_have_one_size_whatever_the_context() -> None:
    """Qwen3.5-122B: 36 layers x (64 heads x 128 x 128 floats + 3 x 12,288 channels of 16 bits)."""
    model = catalogue.load("qwen3.5-122b-a10b")
    cache = cache_of(model, ONE, "bf16")
    assert cache.state == 36 * (4 * 64 * 128 * 128 + 2 * 3 * 12_288)
    assert cache.request_bytes(0) == cache.state
    assert cache_of(model, Layout(tensor=2), "bf16").state == cache.state / 2
    assert token_bytes(model.mixers["linear"], ranks=1, dtype="bf16") == 0
    assert state_bytes(model.mixers["full"], ranks=1) == 0


def test_a_pipeline_keeps_a_stage_of_each_request() -> None:
    model = catalogue.load("llama-3.3-70b")
    assert cache_of(model, Layout(pipeline=4), "bf16").per_token == 327_680 / 4


def test_the_worked_example_of_glm() -> None:
    """GLM-5.1 FP8 over 8 H200: about 39 GB of cache a GPU, 0.63 million tokens for the node, 3 full contexts."""
    model, gpu, layout = catalogue.load("glm-5.1-fp8"), GPUS["h200-sxm"], Layout(tensor=8)
    room = cache_room(model, gpu, layout, batched_tokens=8192)
    longest = longest_request(cache_of(model, layout, "fp8"), room)
    assert 38e9 < room < 41e9
    assert 600_000 < longest < 670_000
    assert longest // model.max_context_tokens == 3


@pytest.mark.parametrize("name", catalogue.names())
@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_more_gpus_never_hold_less(name: str, gpu: str) -> None:
    """Twice the tensor-parallel ranks never shorten the longest request, where both are legal."""
    model = catalogue.load(name)
    layouts = [each for each in candidates(model, GPUS[gpu]) if each.tensor_alone and not each.expert_parallel]
    longest = [
        longest_request(cache_of(model, layout, "bf16"), max(0.0, room))
        for layout in layouts
        if (room := cache_room(model, GPUS[gpu], layout, batched_tokens=8192)) > -1e15
        and cache_of(model, layout, "bf16").per_token
    ]
    assert longest == sorted(longest)


def test_the_longest_request_fits_and_one_block_more_does_not() -> None:
    for name in catalogue.names():
        cache = cache_of(catalogue.load(name), ONE, "bf16")
        if not cache.per_token:
            continue
        longest = longest_request(cache, 10e9)
        assert cache.request_bytes(longest) <= 10e9 < cache.request_bytes(longest + BLOCK_TOKENS)
    assert longest_request(cache_of(catalogue.load("qwen3-8b"), ONE, "bf16"), 1000) == 0
