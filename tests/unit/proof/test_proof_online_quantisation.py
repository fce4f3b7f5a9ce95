"""Weights that vLLM quantises as it loads them: what is held, what is read, and what a start has at most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, DenseFeedForward
from stacks.plan.block import block
from stacks.proof.bands import fidelity_of
from stacks.proof.case import Case
from stacks.proof.fixes import nearest
from stacks.proof.layouts import Layout, weights_per_gpu
from stacks.proof.online_quantisation import ONLINE, as_loaded, as_stored, largest_module
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.weights import weight_bytes
from tests.unit.proof.proof_orders import CHAT, order

pytestmark = pytest.mark.row("002.08", "003.03")

ONE = Layout()
STORED_IN_16_BITS = [
    name
    for name in catalogue.names()
    if (known := catalogue.load(name)).task == "generate" and known.quantisation.format == "none"
]


def quantised(name: str, method: str = "fp8_per_tensor", gpu: str = "h200-sxm") -> Order:
    plain = order(name, gpu, load=CHAT)
    return replace(plain, model=as_loaded(plain.model, method), stored=plain.model.quantisation)


def size(model: CatalogueModel) -> float:
    return weights_per_gpu(model, ONE) / 1e9


def test_linear_layers_are_halved_and_embeddings_are_not() -> None:
    """Llama-3.3-70B: 70.55 billion parameters, of which 128,256 x 8,192 twice are embeddings, in 16 bits."""
    model = catalogue.load("llama-3.3-70b")
    embeddings = 2 * 128_256 * 8192
    assert size(as_loaded(model, "fp8_per_tensor")) == pytest.approx((70.55e9 + embeddings) / 1e9, rel=1e-3)
    assert size(model) == pytest.approx(141.1, rel=1e-3)
    # NVIDIA's checkpoint quantises the same parts.
    assert size(as_loaded(model, "fp8_per_tensor")) == pytest.approx(size(catalogue.load("llama-3.3-70b-fp8")))


def test_blocks_have_a_scale_of_32_bits_for_128_by_128() -> None:
    model = catalogue.load("qwen3-8b")
    tensor, blocks = (weight_bytes(as_loaded(model, method)) for method in ("fp8_per_tensor", "fp8_per_block"))
    assert blocks.dense / tensor.dense == pytest.approx(1 + 32 / 128**2 / 8)
    assert blocks.embeddings == tensor.embeddings == weight_bytes(model).embeddings


@pytest.mark.parametrize("method", sorted(ONLINE))
@pytest.mark.parametrize("name", STORED_IN_16_BITS)
def test_routers_embeddings_and_vision_stay_as_they_are(name: str, method: str) -> None:
    model = catalogue.load(name)
    before, after = weight_bytes(model), weight_bytes(as_loaded(model, method))
    assert (before.routers, before.embeddings, before.vision) == (after.routers, after.embeddings, after.vision)
    for part in ("mixers", "replicated", "dense", "experts", "shared"):
        assert getattr(after, part) == pytest.approx(getattr(before, part) / 2, rel=2e-3)


def test_a_start_reads_and_downloads_the_files_as_they_are() -> None:
    asked = replace(quantised("llama-3.3-70b"), download_bytes_per_s=1e8)
    proof = prove(asked)
    files = weight_bytes(catalogue.load("llama-3.3-70b")).files
    assert proof.cold_start["read_weights"].value == pytest.approx(files / asked.storage_bytes_per_s)
    assert proof.cold_start["download_weights"].value == pytest.approx(files / 1e8)
    assert proof.weights["weight_files"].value == pytest.approx(files / 1e9)
    assert proof.weights["weights_per_gpu"].value < 0.6 * files / 1e9 / proof.case.layout.gpus * 1.2
    assert as_stored(asked.model, asked.stored) == catalogue.load("llama-3.3-70b")


def test_the_cache_gets_what_the_weights_leave() -> None:
    plain, small = (Case(asked, ONE, 1) for asked in (order("qwen3-8b", load=CHAT), quantised("qwen3-8b")))
    assert small.room - plain.room == pytest.approx(plain.weights - small.weights, rel=0.02)
    assert small.decode_s(1) < plain.decode_s(1)


def test_the_largest_module_is_there_in_16_bits_while_it_is_quantised() -> None:
    """Qwen3.5-122B: all 256 experts of a layer, of 3 x 3,072 x 1,024; Llama-3.3-70B: gate and up, 8,192 x 28,672."""
    assert largest_module(catalogue.load("qwen3.5-122b-a10b"), ONE) == 2 * 256 * 3 * 3072 * 1024
    assert largest_module(catalogue.load("qwen3.5-122b-a10b"), Layout(tensor=2, data=2)) == 2 * 64 * 3 * 3072 * 1024
    assert largest_module(catalogue.load("llama-3.3-70b"), Layout(tensor=4)) == 2 * 2 * 8192 * 28_672 / 4


def test_a_start_without_memory_for_that_is_refused() -> None:
    """One layer of 20 billion parameters: 20 GB in FP8 beside 26 GB of its first matrices are more than an L40S has."""
    wide = DenseFeedForward(kind="dense", count=1, width=1_600_000)
    model = catalogue.load("qwen3-8b").model_copy(update={"feed_forward": {"wide": wide}})
    loaded = as_loaded(model, "fp8_per_tensor")
    asked = replace(order("qwen3-8b", "l40s"), model=loaded, stored=model.quantisation, typical_request_tokens=512)
    case = Case(asked, ONE, 1)
    assert case.longest > 10_000
    assert [problem.kind for problem in case.fit_problems] == ["weights"]
    assert "a start has up to 49.9 GB of weights per GPU while it quantises them (TP1)" in case.fit_problems[0].text
    # Two GPUs have half of each, and weights that come quantised are never there in 16 bits.
    assert Case(asked, Layout(tensor=2), 1).fit_problems == []
    assert Case(replace(asked, stored=None), ONE, 1).fit_problems == []


def test_a_gpu_without_units_is_refused_and_the_way_out_is_named() -> None:
    proof = prove(replace(quantised("qwen3-8b", gpu="a100-80gb"), kv_dtype="bf16"))
    assert [problem.kind for problem in proof.problems] == ["precision"]
    assert "a100-80gb has no FP8 units, and the weights are to be fp8" in proof.problems[0].text
    assert nearest(proof)[0].text == "take server.quantization out"
    assert nearest(proof)[0].proof.case.order.model.quantisation.format == "none"


def test_figures_of_quantised_weights_are_estimated_and_the_block_names_what_is_not_known() -> None:
    proof = Proof(Case(quantised("qwen3-8b"), ONE, 1))
    assert fidelity_of(order("qwen3-8b")) == "calibrated"
    assert fidelity_of(proof.order) == "estimated"
    (line,) = (line for line in block(proof).splitlines() if line.strip().startswith("quantised"))
    assert "to fp8 while the files are read" in line
    assert "what the answers lose is not proven  [estimated]" in line
    assert proof.figures()["loading_per_gpu"].value == pytest.approx((proof.case.weights + 2 * 2 * 4096 * 12_288) / 1e9)
    assert Proof(Case(order("qwen3-8b"), ONE, 1)).loading == {}


@pytest.mark.parametrize("name", STORED_IN_16_BITS)
def test_fewer_bytes_never_need_more_gpus(name: str) -> None:
    plain, small = (prove(asked) for asked in (order(name, load=CHAT), quantised(name)))
    assert small.case.gpus <= plain.case.gpus
    assert small.case.weights * small.case.layout.gpus < plain.case.weights * plain.case.layout.gpus
