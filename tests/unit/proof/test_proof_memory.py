"""Cache bytes against published logs and the engine's formulas, and what fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.cache import BLOCK_TOKENS, BlockTables, KvDtype, cache_of, state_bytes, token_bytes
from stacks.proof.case import Case
from stacks.proof.layouts import Layout, candidates
from stacks.proof.memory import EngineVersion, graph_sizes, longest_request
from tests.unit.proof.proof_orders import order, reserve_of

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
    assert longest_request(cache, 17.39 * GIB, batched_tokens=8192) == pytest.approx(810_208, rel=0.001)


def test_a_published_log_of_gpt_oss() -> None:
    """vllm issue 27508, one step at a time of 1,024 tokens: 4.54 GiB for a request of 131,072 tokens."""
    cache = replace(cache_of(catalogue.load("gpt-oss-120b"), ONE, "bf16"), in_flight_batches=1)
    # Its count leaves out the block that no request gets.
    counted = cache.longest_bytes(131_072, 1024) - cache.block_bytes
    assert counted / GIB == pytest.approx(4.54, abs=0.005)
    assert counted == 36_864 * (131_072 + 127 + 1024 + 1 + BLOCK_TOKENS)


def test_the_largest_picture_is_in_what_a_start_measures() -> None:
    """Of two public starts with this tower (0.17), 4 and 8 sequences: 2.0 GiB, 0.1 to 0.5 of it context."""
    for sequences, tokens in ((4, 4096), (8, 6144)):
        reserve = reserve_of(
            catalogue.load("qwen3.5-122b-a10b"), ONE, sequences=sequences, batched_tokens=tokens, engine=(0, 17)
        )
        assert 1.5 <= reserve.step / GIB <= 1.9


def test_as_many_pictures_are_seen_at_once_as_a_step_has_room_for() -> None:
    """16 of Gemma 3 in 4,096 tokens; of a picture with more vectors than a step has tokens, one."""
    for name, tokens, times in (("gemma-3-27b", 4096, 2), ("mistral-small-3.2-24b", 4096, 2), ("kimi-k2.5", 2048, 1)):
        fewer, more = (
            reserve_of(catalogue.load(name), Layout(tensor=8), sequences=1, batched_tokens=size).step
            for size in (tokens, 2 * tokens)
        )
        assert more == pytest.approx(times * fewer)


def test_vectors_of_pictures_stay_while_a_step_runs() -> None:
    seeing = catalogue.load("gemma-3-27b")
    blind = seeing.model_copy(update={"vision_tower": None})
    with_pictures, without = (
        reserve_of(model, ONE, sequences=1024, batched_tokens=8192).step for model in (seeing, blind)
    )
    assert with_pictures - without == 2 * 8192 * 5376


def test_a_published_log_of_qwen_next() -> None:
    """Qwen3.5-122B-A10B with an fp8 cache: 21.43 GiB hold 11.79 requests of 131,072 tokens, in blocks of 4,176."""
    cache = cache_of(catalogue.load("qwen3.5-122b-a10b"), ONE, "fp8")
    assert cache.groups == (BlockTables(count=1, block_tokens=4176), BlockTables(count=3, block_tokens=1, blocks=2))
    blocks = 21.43 * GIB // cache.block_bytes
    needed = cache.longest_bytes(131_072, 8192) / cache.block_bytes - 1
    assert blocks / needed == pytest.approx(11.79, abs=0.005)


@pytest.mark.parametrize(("tensor", "block"), [(4, 2096), (8, 1056)])
def test_blocks_of_attention_grow_to_the_size_of_a_state(tensor: int, block: int) -> None:
    """The figures of the same log for more ranks: 2,096 tokens with an fp8 cache over 4, twice 528 over 8."""
    cache = cache_of(catalogue.load("qwen3.5-122b-a10b"), Layout(tensor=tensor), "fp8")
    assert cache.groups[0].block_tokens == block


def test_half_of_gpt_oss_stops_growing() -> None:
    """36,864 bytes per token grow; the other half is bounded by its window, in whole blocks and one more."""
    cache = cache_of(catalogue.load("gpt-oss-120b"), ONE, "bf16")
    assert cache.per_token == 2 * 36_864
    assert cache.request_bytes(100_000) == 36_864 * (100_000 + 128 + BLOCK_TOKENS)


def test_layers_of_a_kind_are_cut_into_groups_and_padded() -> None:
    """Gemma 3: 10 layers keep everything, so 52 with a window are six groups of ten, not 5.2."""
    cache = cache_of(catalogue.load("gemma-3-27b"), ONE, "bf16")
    assert [group.count for group in cache.groups] == [1, 6]
    assert cache.block_bytes == 10 * BLOCK_TOKENS * 8192
    assert cache.request_bytes(65_536) == cache.block_bytes * (4096 + 6 * 65)


def test_steps_under_way_keep_what_their_windows_would_drop() -> None:
    cache = cache_of(catalogue.load("gpt-oss-120b"), ONE, "bf16")
    assert cache.in_flight_batches == 2
    assert cache.longest_bytes(131_072, 8192) > cache.longest_bytes(131_072, 1024) > cache.request_bytes(131_072)
    assert cache.shared_bytes(8192) == cache.block_bytes * (1 + 2 * 8192 / BLOCK_TOKENS)
    assert cache_of(catalogue.load("llama-3.1-8b"), ONE, "bf16").shared_bytes(8192) == 16 * 131_072


def test_heads_are_shared_until_there_are_none_and_latents_never() -> None:
    qwen, glm = catalogue.load("qwen3-32b-fp8"), catalogue.load("glm-5.1-fp8")
    sizes = [cache_of(qwen, Layout(tensor=ranks), "fp8").per_token for ranks in (1, 2, 8, 16)]
    assert sizes == [131_072, 65_536, 16_384, 16_384]
    assert cache_of(glm, Layout(tensor=8), "fp8") == cache_of(glm, ONE, "fp8")


def test_states_have_one_size_whatever_the_context() -> None:
    """Qwen3.5-122B: 36 layers x (64 heads x 128 x 128 floats + 3 x 12,288 channels of 16 bits), twice, in pages."""
    model = catalogue.load("qwen3.5-122b-a10b")
    layer = 4 * 64 * 128 * 128 + 2 * 3 * 12_288
    assert state_bytes(model.mixers["linear"], ranks=1) == layer
    cache = cache_of(model, ONE, "bf16")
    assert 2 * 36 * layer <= cache.state == cache.request_bytes(0) < 2 * 36 * layer * 1.01
    assert token_bytes(model.mixers["linear"], ranks=1, dtype="bf16") == 0
    assert state_bytes(model.mixers["full"], ranks=1) == 0


def test_a_pipeline_keeps_a_stage_of_each_request() -> None:
    model = catalogue.load("llama-3.3-70b")
    assert cache_of(model, Layout(pipeline=4), "bf16").per_token == 327_680 / 4


def test_the_worked_example_of_glm() -> None:
    """GLM-5.1 FP8 over 8 H200: about 38 GB of cache a GPU, 0.6 million tokens for the node, 3 full contexts."""
    case = Case(order("glm-5.1-fp8", engine=(0, 32)), Layout(tensor=8), 1)
    assert 36e9 < case.room < 40e9
    assert 570_000 < case.longest < 640_000
    assert case.longest // case.order.model.max_context_tokens == 2
    assert case.cache_tokens // case.order.model.max_context_tokens == 3


@pytest.mark.parametrize("name", catalogue.names())
@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_more_gpus_never_hold_less(name: str, gpu: str) -> None:
    """Twice the tensor-parallel ranks never shorten the longest request, where both are legal."""
    model = catalogue.load(name)
    layouts = [layout for layout in candidates(model, GPUS[gpu]) if layout.tensor_alone and not layout.expert_parallel]
    asked = order(name, gpu, kv_dtype="bf16", max_num_seqs=64, max_num_batched_tokens=2048)
    longest = [Case(asked, layout, 1).longest for layout in layouts if cache_of(model, layout, "bf16").per_token]
    assert longest == sorted(longest)


def test_the_longest_request_fits_and_one_block_more_does_not() -> None:
    for name in catalogue.names():
        cache = cache_of(catalogue.load(name), ONE, "bf16")
        if not cache.per_token:
            continue
        longest = longest_request(cache, 10e9, batched_tokens=2048)
        step = cache.groups[0].block_tokens
        assert cache.longest_bytes(longest, 2048) <= 10e9 < cache.longest_bytes(longest + step, 2048)
    assert longest_request(cache_of(catalogue.load("qwen3-8b"), ONE, "bf16"), 1000, batched_tokens=2048) == 0


@pytest.mark.parametrize(
    ("largest", "sizes"),
    # 51 and 35 are the engine's own counts for its defaults; 5 are 1, 2, 4, 8, 16.
    [(1024, 83), (512, 51), (256, 35), (16, 5), (1, 1)],
)
def test_captured_batch_sizes(largest: int, sizes: int) -> None:
    assert graph_sizes(largest) == sizes


@pytest.mark.parametrize(
    ("gpu", "engine", "sizes"),
    [
        ("h200-sxm", None, 51),
        ("h200-sxm", (0, 29), 51),
        ("b200", (0, 26), 51),
        ("b200", (0, 29), 83),
        ("gb200", None, 83),
    ],
)
def test_blackwell_captures_larger_batches(gpu: str, engine: EngineVersion | None, sizes: int) -> None:
    """vLLM 0.29 config/vllm.py (_set_cudagraph_sizes): up to 1,024 with compute capability 10; 0.26 has 512 alone."""
    model = catalogue.load("llama-3.1-8b")
    single, many = (
        reserve_of(model, ONE, sequences=sequences, batched_tokens=tokens, engine=engine, gpu=gpu).graphs
        for sequences, tokens in ((1, 1), (1024, 8192))
    )
    assert many / single == pytest.approx(sizes)


def test_what_a_site_allows_takes_from_the_cache() -> None:
    """Each sequence costs its logits and graphs, each token of a step its activations."""
    model = catalogue.load("gpt-oss-120b")

    def total(sequences: int, batched_tokens: int) -> float:
        return reserve_of(model, ONE, sequences=sequences, batched_tokens=batched_tokens).total

    assert total(1024, 8192) > total(256, 8192) > total(6, 8192) > total(6, 2048)
    few = Case(order("gpt-oss-120b", "h100-sxm", max_num_seqs=8), ONE, 1)
    many = Case(order("gpt-oss-120b", "h100-sxm", max_num_seqs=512), ONE, 1)
    assert few.room - many.room > 38 * 500 * model.vocabulary


def test_the_proof_chooses_sequences_and_steps_that_leave_room_for_themselves() -> None:
    """With the engine's defaults no H100 starts gpt-oss-120b; with what is derived it holds requests of 16 K."""
    asked = order("gpt-oss-120b", "h100-sxm", kv_dtype="bf16")
    case = Case(asked, ONE, 1)
    assert not case.problems
    assert 1 <= case.slots <= case.held
    assert Case(replace(asked, max_num_seqs=1024, max_num_batched_tokens=8192), ONE, 1).problems
