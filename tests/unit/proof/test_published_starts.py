"""What published starts of vLLM printed of their caches' blocks, and which of them the engine refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from stacks.proof.cache import Cache, KvDtype, cache_of
from stacks.proof.case import Case
from stacks.proof.layouts import Layout
from tests.unit.proof.proof_orders import drafting, order, published_model

pytestmark = pytest.mark.row("opening 1", "001.18")

GIB = 2**30
ONE = Layout()
GATHERED = Layout(data=8, expert_parallel=True)


def request_blocks(cache: Cache, tokens: int, states: int) -> int:
    """Blocks of a request of that length; two of a layer's states where prefix caching is on, else one."""
    return sum(
        group.count * (states if group.blocks else math.ceil(tokens / group.block_tokens)) for group in cache.groups
    )


@pytest.mark.parametrize(
    ("name", "tensor", "dtype", "states", "context", "room", "held"),
    # GiB of one GPU for caches, as printed.
    [
        # Nemotron-Cascade-2-30B-A3B, which has its geometry, on an H100 of 94 GB (0.19.1).
        ("nemotron-3-nano", 1, "fp8", 1, 262_144, 68.97, 86.16),
        ("qwen3.8-27b-fp8", 1, "bf16", 1, 131_072, 8.82, 1.08),
        ("qwen3.8-27b-fp8", 1, "bf16", 1, 131_072, 9.75, 1.19),
        ("qwen3.5-9b", 1, "bf16", 1, 262_144, 20.27, 2.52),
        ("qwen3.5-9b", 1, "fp8", 2, 16_384, 13.11, 36.95),
        ("qwen3.5-9b", 1, "fp8", 2, 16_384, 4.24, 11.91),
        ("qwen3.5-122b-a10b", 2, "fp8", 2, 131_072, 1.73, 1.89),
    ],
)
def test_a_hybrid_s_pool_holds_the_requests_that_were_printed(
    name: str, tensor: int, dtype: KvDtype, states: int, context: int, room: float, held: float
) -> None:
    cache = cache_of(published_model(name), Layout(tensor=tensor), dtype)
    pool = room * GIB // cache.block_bytes
    # The room is rounded to a hundredth, and what it holds too.
    assert pool / request_blocks(cache, context, states) == pytest.approx(
        held, abs=0.005 + held * (0.005 / room + 1 / pool)
    )


def test_a_hybrid_s_pool_holds_the_requests_of_drafted_tokens_that_were_printed() -> None:
    """Qwen3.6-35B-A3B with 3 tokens of its draft layer (0.22): blocks of 1,072 tokens, 15.66 requests of 200,000 in
    71.15 GiB. Without drafts a block has 1,056.
    """
    model = published_model("qwen3.6-35b-a3b")
    cache = cache_of(model, ONE, "bf16", drafting("mtp", 3))
    assert {group.block_tokens for group in cache.groups if not group.blocks} == {1072}
    assert {group.block_tokens for group in cache_of(model, ONE, "bf16").groups if not group.blocks} == {1056}
    pool = 71.15 * GIB // cache.block_bytes
    assert pool / request_blocks(cache, 200_000, 2 + 3) == pytest.approx(15.66, abs=0.01)


@pytest.mark.parametrize(
    ("name", "layout", "dtype", "room", "tokens"),
    [
        ("deepseek-r1", Layout(tensor=8), "bf16", 41.6, 635_648),
        ("llama-3.3-70b-fp8", Layout(tensor=4), "bf16", 106.17, 1_391_552),
        ("glm-5.1-fp8", Layout(tensor=8), "bf16", 32.11, 344_192),
        ("mistral-small-4", Layout(tensor=2), "bf16", 1.63, 75_776),
        ("qwen2.5-7b", ONE, "bf16", 26.32, 492_912),
    ],
)
def test_a_room_holds_the_tokens_that_were_printed(
    name: str, layout: Layout, dtype: KvDtype, room: float, tokens: int
) -> None:
    cache = cache_of(published_model(name), layout, dtype)
    assert room * GIB / cache.per_token == pytest.approx(tokens, rel=0.005 / room + 1e-4)


def test_a_state_without_a_type_of_its_own_has_that_of_the_weights() -> None:
    """Qwen3-Next's config names none, and vLLM 0.32 sets one for other families alone (models/config.py): 84.29
    requests of 32,768 tokens in 17.58 GiB of an fp8 cache without prefix caching (0.13).
    """
    cache = cache_of(published_model("qwen3-next-80b-a3b"), Layout(tensor=2), "fp8")
    assert 17.58 * GIB / cache.block_bytes / request_blocks(cache, 32_768, 1) == pytest.approx(84.29, abs=0.03)


@pytest.mark.parametrize(
    ("name", "gpu", "layout", "settings"),
    [
        # 184 blocks of states for 256 sequences at 0.90; at 0.86 too little for the context (0.26).
        ("qwen3.8-27b-fp8", "l40s", ONE, {"max_num_seqs": 256, "max_num_batched_tokens": 2048}),
        ("qwen3.8-27b-fp8", "l40s", ONE, {"max_num_seqs": 256, "context_tokens": 131_072}),
        # InferenceX issue 1587: 0.90 GiB where a request of 262,144 tokens takes 8.58, at 0.95.
        ("kimi-k2.5", "h100-sxm", Layout(tensor=8), {"kv_dtype": "fp8", "context_tokens": 262_144}),
        # vllm-project/recipes pull request 12: 48.66 GiB where it takes 62.00 (0.10), and 55.65 at 0.95.
        ("qwen3-coder-480b-fp8", "h200-sxm", GATHERED, {"context_tokens": 262_144}),
    ],
)
def test_what_was_refused_does_not_hold(name: str, gpu: str, layout: Layout, settings: dict[str, Any]) -> None:
    refused = order(name, gpu, **({"kv_dtype": "bf16"} | settings))
    for engine in (None, (0, 26), (0, 32)):
        assert Case(replace(refused, engine=engine), layout, 1).fit_problems


def test_data_parallel_ranks_start_on_no_gpu_that_has_little_beside_the_budget() -> None:
    """A study of Qwen3-30B-A3B on four L4 (0.29) with 768 sequences at 0.88: out of memory with two data-parallel
    ranks of two; with four of one 21.74 of 22.03 GiB were in use, 2.35 more than the budget, and 0.92 is 0.88 more.
    """
    budget, used, total = 0.88 * 22.03, 22_261 / 1024, 22.03
    assert used - budget + 0.92 * total > total
    asked = order("qwen3-30b-a3b-fp8", "l4", max_num_seqs=16, max_num_batched_tokens=2048)
    for layout in (Layout(tensor=2, data=2, expert_parallel=True), Layout(data=4, expert_parallel=True)):
        (problem,) = Case(asked, layout, 1).problems
        assert problem.kind == "illegal"
        assert "1.9 GB beside it are fewer than the 2.6 GB" in problem.text
        assert not Case(replace(asked, gpu="l40s"), layout, 1).problems
    # Four tensor-parallel ranks started.
    assert not Case(asked, Layout(tensor=4, expert_parallel=True), 1).problems


def test_a_pool_has_the_blocks_of_states_that_were_printed() -> None:
    """`max_num_seqs (256) exceeds available Mamba cache blocks (184)`, with 8.82 GiB; a request here holds more."""
    cache = cache_of(published_model("qwen3.8-27b-fp8"), ONE, "bf16")
    assert 8.82 * GIB // cache.block_bytes == 184
    assert cache.request_bytes(1) > cache.block_bytes


def test_what_was_started_holds() -> None:
    """The same on an L40S with 16 sequences and a context of 131,072 tokens, at 0.90."""
    started = order(
        "qwen3.8-27b-fp8",
        "l40s",
        kv_dtype="bf16",
        context_tokens=131_072,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        typical_request_tokens=2048,
        engine=(0, 26),
    )
    assert not Case(started, ONE, 1).problems
