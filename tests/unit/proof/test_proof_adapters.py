"""What adapters take of a GPU and of a volume, held against counts by hand, and that requests lose that room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.plan.block import block
from stacks.proof.adapters import Adapter, Adapters, adaptable, adapter_bytes, adapter_files
from stacks.proof.layouts import Layout
from stacks.proof.memory import footprint_of
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import CHAT, TARGETS, order

pytestmark = pytest.mark.row("001.13")

QWEN = catalogue.load("qwen3-32b-fp8")
ATTENTION = frozenset({"q_proj", "v_proj"})
ALL = ATTENTION | {"k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
LAYERS, HIDDEN, QUERIES, KEYS, WIDTH = 64, 5120, 64 * 128, 8 * 128, 25_600


def adapters(*ranks: int, modules: frozenset[str] = ALL, room: int = 16) -> Adapters:
    return Adapters(loaded=tuple(Adapter(rank=rank, modules=modules) for rank in ranks), rank=room)


def test_each_slot_has_both_matrices_of_the_largest_rank() -> None:
    """The published size of an adapter of all projections of this model, rank 16: 134 million parameters."""
    inputs = 3 * HIDDEN + QUERIES + 2 * HIDDEN + WIDTH
    outputs = QUERIES + 2 * KEYS + HIDDEN + 2 * WIDTH + HIDDEN
    assert adapter_bytes(QWEN, Layout(), adapters(16)) == 2 * 16 * LAYERS * (inputs + outputs)
    assert 16 * LAYERS * (inputs + outputs) == pytest.approx(134e6, rel=0.01)
    assert adapter_bytes(QWEN, Layout(), adapters(8, 4)) == 2 * adapter_bytes(QWEN, Layout(), adapters(16))
    assert adapter_bytes(QWEN, Layout(), adapters(16, room=32)) == 2 * adapter_bytes(QWEN, Layout(), adapters(16))
    assert adapter_bytes(QWEN, Layout(), None) == 0


def test_ranks_divide_one_matrix_of_each_projection_and_stages_divide_layers() -> None:
    """Sixteen ranks have the eight heads of keys and values twice."""
    on_a_rank = 3 * HIDDEN + (QUERIES + 2 * 2 * KEYS) / 16
    assert adapter_bytes(QWEN, Layout(tensor=16), adapters(16, modules=ATTENTION)) == 2 * 16 * LAYERS * on_a_rank
    down, out, up = (adapters(16, modules=frozenset({name})) for name in ("down_proj", "o_proj", "up_proj"))
    assert adapter_bytes(QWEN, Layout(tensor=2), down) == 2 * 16 * LAYERS * (WIDTH / 2 + HIDDEN)
    assert adapter_bytes(QWEN, Layout(tensor=2), out) == 2 * 16 * LAYERS * (QUERIES / 2 + HIDDEN)
    assert adapter_bytes(QWEN, Layout(tensor=2), up) == 2 * 16 * LAYERS * 2 * (HIDDEN + WIDTH / 2)
    halves = [adapter_bytes(QWEN, Layout(pipeline=stages), down) for stages in (1, 2)]
    assert halves[0] == 2 * halves[1]


def test_projections_of_an_engines_one_layer_come_together() -> None:
    alone = adapters(16, modules=frozenset({"q_proj"}))
    whole = adapters(16, modules=frozenset({"q_proj", "k_proj", "v_proj"}))
    assert adapter_bytes(QWEN, Layout(), alone) == adapter_bytes(QWEN, Layout(), whole)


def test_files_have_each_adapters_own_rank_in_32_bits() -> None:
    assert adapter_files(QWEN, adapters(4, 12)) == 2 * adapter_bytes(QWEN, Layout(), adapters(16))


def test_layers_of_experts_and_latent_attention_have_none() -> None:
    assert {"q_proj", "o_proj"} <= {*adaptable(catalogue.load("gpt-oss-120b"))}
    assert "down_proj" not in adaptable(catalogue.load("gpt-oss-120b"))
    assert adaptable(catalogue.load("deepseek-v3")) == ()
    assert "down_proj" in adaptable(QWEN)


def test_requests_lose_the_room_and_each_graph_is_there_twice() -> None:
    plain = prove(order("qwen3-32b-fp8", load=CHAT, slo=TARGETS, replicas=4, layout=Layout()))
    many = adapters(*[64] * 16, room=64)
    adapted = prove(replace(plain.order, adapters=many))
    lost = adapter_bytes(QWEN, Layout(), many)
    graphs = footprint_of(QWEN, Layout(), adapted=True).graph
    assert graphs == 2 * footprint_of(QWEN, Layout()).graph
    assert adapted.case.weights - plain.case.weights == lost > 15e9
    assert adapted.case.cache_tokens < plain.case.cache_tokens * 0.85
    assert adapted.order.file_bytes > plain.order.file_bytes
    (line,) = [line for line in block(adapted).splitlines() if line.strip().startswith("adapters")]
    assert "16 of up to rank 64: 17.2 GB of the weights per GPU" in line


def test_a_gpu_that_is_too_small_for_them_is_not_said_to_do() -> None:
    small = order("qwen3-32b-fp8", gpu="l40s", layout=Layout())
    assert prove(small).case.longest > 0
    assert prove(replace(small, adapters=adapters(*[512] * 16, room=512))).case.longest == 0
