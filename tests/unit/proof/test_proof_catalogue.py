"""What the catalogue says of each model agrees with what its maker publishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from floor.problems import SiteError
from stacks.facts import catalogue
from stacks.facts.hardware import FOLDER, GPUS, Gpu
from stacks.facts.records import read_facts
from stacks.importing.quantising import quantisation
from stacks.proof.layouts import Layout, layer_count, weights_per_gpu
from stacks.proof.weights import parameters, part_bits, weight_bytes

pytestmark = pytest.mark.row("000.02", "000.18", "000.40")

GIB = 2**30


def test_the_catalogue_has_what_people_serve() -> None:
    tasks = [catalogue.load(name).task for name in catalogue.names()]
    kinds = {mixer.kind for name in catalogue.names() for mixer in catalogue.load(name).mixers.values()}
    assert len(tasks) >= 30
    assert set(tasks) == {"generate", "embed", "rerank"}
    assert kinds == {"full", "sliding", "latent", "delta", "mamba", "encoder"}


@pytest.mark.parametrize("name", catalogue.names())
def test_derived_parameters_are_the_published_ones(name: str) -> None:
    """All parameters within 2 %; active ones within 12 %, as makers count the output embedding or do not."""
    model = catalogue.load(name)
    counts = parameters(model)
    assert counts.total == pytest.approx(model.published.parameters, rel=0.02)
    if model.task == "generate":
        stated = model.published.active_parameters
        assert min(abs(counts.active - stated), abs(counts.active - counts.head - stated)) <= 0.12 * stated


@pytest.mark.row("000.07")
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("bge-m3", 2_271_145_830),
        ("bge-reranker-v2-m3", 2_271_071_852),
        ("multilingual-e5-large", 2_239_607_176),
    ],
)
def test_files_of_32_bits_take_twice_the_room_and_are_loaded_in_16(name: str, published: int) -> None:
    """A volume that is counted for 16 bits takes no such file."""
    sizes = weight_bytes(catalogue.load(name))
    assert sizes.files == pytest.approx(published, rel=0.03)
    assert sizes.loaded == pytest.approx(published / 2, rel=0.03)


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_an_import_keeps_a_type_of_32_bits(key: str) -> None:
    shape = {"feed_forward": {"dense": {"kind": "dense"}}}
    assert quantisation({key: "float32"}, shape) == {"format": "none", "unquantised": "float32"}
    assert quantisation({"text_config": {key: "float32"}}, shape) == {"format": "none", "unquantised": "float32"}
    assert quantisation({key: "float16"}, shape) == quantisation({}, shape) == {"format": "none"}


@pytest.mark.parametrize("name", catalogue.names())
def test_every_fact_was_looked_up_somewhere_or_says_that_it_was_not(name: str) -> None:
    model = catalogue.load(name)
    for key in ("revision", "engine_version"):
        assert bool(getattr(model, key)) != model.sources[key].startswith("not looked up: "), key
    assert not model.vision_parameters or "stacks/importing/vision.py" in model.sources["vision_parameters"]
    assert bool(model.vision_parameters) == bool(model.vision_tower) == bool(model.sources.get("vision_tower"))
    assert model.published.source
    # What looked up says is an address, a repository at a commit, or where the text was searched for.
    assert "general knowledge" not in model.sources["licence"] or "not looked up" in model.sources["licence"]


@pytest.mark.row("000.07")
def test_a_revision_is_of_the_repository_that_its_source_names() -> None:
    """A source is the folder of a hub's cache, which has the repository's name in it; no two models share a commit."""
    models = [catalogue.load(name) for name in catalogue.names()]
    named = [model.revision for model in models if model.revision]
    assert len(named) == len(set(named)) >= 30
    for model in models:
        folder = f"models--{model.repository.replace('/', '--')}/"
        assert not model.revision or folder in model.sources["revision"]


def test_code_of_a_repository_runs_only_where_the_entry_says_why() -> None:
    """Two of three that had --trust-remote-code did not need it: the pinned engine has their classes."""
    trusted = {name: model.remote_code for name in catalogue.names() if (model := catalogue.load(name)).remote_code}
    assert set(trusted) == {"kimi-k2.5"}
    assert trusted["kimi-k2.5"] is not None
    assert "tokenization_kimi.py" in trusted["kimi-k2.5"].files


@pytest.mark.row("002.04")
def test_the_platform_s_kinds_of_models_are_there() -> None:
    """Generators, small ones for drafts and guards among them, encoders of texts, and rerankers."""
    by_task = {
        task: {name for name in catalogue.names() if catalogue.load(name).task == task}
        for task in ("generate", "embed", "rerank")
    }
    assert {"bge-m3", "multilingual-e5-large", "qwen3-embedding-0.6b", "qwen3-embedding-4b"} < by_task["embed"]
    assert {"qwen3-reranker-0.6b", "qwen3-reranker-4b"} < by_task["rerank"]
    assert {"qwen3guard-gen-4b", "qwen3-0.6b", "llama-3.2-1b", "minimax-m2.7", "deepseek-v3"} < by_task["generate"]


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        # gpt-oss model card, table 1: checkpoints of 60.8 and 12.8 GiB.
        ("gpt-oss-120b", 60.8 * GIB / 1e9),
        ("gpt-oss-20b", 12.8 * GIB / 1e9),
        # What the documents say of GLM-5.1 in FP8.
        ("glm-5.1-fp8", 756),
        # 70.55 billion parameters of 16 bits.
        ("llama-3.3-70b", 141.1),
        # A folder of NVIDIA's FP8 checkpoint: 68 GiB, in a public repository's list.
        ("llama-3.3-70b-fp8", 68 * GIB / 1e9),
        # Two public tables of open models.
        ("glm-4.6-fp8", 357),
    ],
)
def test_files_have_the_published_size(name: str, gigabytes: float) -> None:
    assert weight_bytes(catalogue.load(name)).files / 1e9 == pytest.approx(gigabytes, rel=0.005)


def test_draft_layers_are_in_the_files_and_not_in_memory() -> None:
    """DeepSeek-V3: 671 billion and a draft layer; the hub counts GLM-5.2, of the same geometry as GLM-5.1, as 753."""
    glm = parameters(catalogue.load("glm-5.1-fp8"))
    assert (glm.total + glm.draft) / 1e9 == pytest.approx(753, abs=1.5)
    sizes = weight_bytes(catalogue.load("deepseek-r1"))
    assert sizes.files - sizes.loaded == pytest.approx(sizes.draft)
    assert sizes.draft > 10e9


def test_scales_count_as_stored_bits() -> None:
    assert part_bits(catalogue.load("gpt-oss-120b"), "experts") == 4.25
    assert part_bits(catalogue.load("gpt-oss-120b"), "mixers") == 16
    assert part_bits(catalogue.load("deepseek-v3.1-nvfp4"), "experts") == 4.5


def test_parts_are_cut_as_the_engine_cuts_them() -> None:
    """Compressions of latent attention stay whole on each rank, experts are divided over all of them."""
    model = catalogue.load("deepseek-r1")
    sizes, loaded = weight_bytes(model), weight_bytes(model).loaded
    eight = weights_per_gpu(model, Layout(tensor=8))
    # For decode steps 61 layers x 128 heads x 512 x (128 + 128) elements of 16 bits are there a second time.
    absorbed = 2 * 61 * 128 * 512 * 256
    whole = sizes.replicated + sizes.routers
    assert eight == pytest.approx((loaded - whole + absorbed) / 8 + whole)
    spread = weights_per_gpu(model, Layout(data=8, expert_parallel=True))
    assert spread == pytest.approx(loaded + absorbed - sizes.experts * 7 / 8)
    dense = catalogue.load("llama-3.3-70b")
    assert weights_per_gpu(dense, Layout(tensor=4)) == pytest.approx(weight_bytes(dense).loaded / 4)
    # Two stages of 40 layers each; input and output embeddings are on different ones.
    assert weights_per_gpu(dense, Layout(pipeline=2)) == pytest.approx(weight_bytes(dense).loaded / 2)


def test_layers_add_up() -> None:
    for name, layers in {
        "gpt-oss-120b": 36,
        "qwen3.5-122b-a10b": 48,
        "llama-4-maverick": 48,
        "gemma-3-27b": 62,
    }.items():
        assert layer_count(catalogue.load(name)) == layers


def test_hardware_has_what_was_asked_for_and_says_where_from() -> None:
    assert {"h100-sxm", "h200-sxm", "b200", "gb200", "a100-80gb", "l4", "l40s", "mi300x"} <= set(GPUS)
    for gpu in GPUS.values():
        assert {"memory_bytes", "speed"} <= set(gpu.sources)
        assert gpu.flops_at("fp8") >= gpu.flops["bf16"]
        assert gpu.link_domain >= gpu.gpus_per_node
    assert GPUS["a100-80gb"].flops_at("fp8") == GPUS["a100-80gb"].flops["bf16"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("flops: {bf16: 9.89e+14, fp8: 1.978e+15}", "flops: {fp8: 1.978e+15}", "flops: holds no bf16"),
        ("fp8: 1.978e+15}", "fp8: 1.978e+14}", "flops: states less for fp8 than for bf16"),
        ("link_domain: 8", "link_domain: 2", "link_domain, 2, is less than gpus_per_node, 8"),
        ("  memory_bytes: 139", "  memory: 139", "sources: holds no memory_bytes"),
        ("node_power_w: 10200", "node_power_w: 700", "node_power_w, 700, is less than its 8 GPUs take"),
        ("  node_power_w: 10.2", "  node: 10.2", "sources holds no node_power_w"),
        ("maker: nvidia\nfamily: hopper", "maker: nvidia", "family is missing"),
    ],
)
def test_hardware_that_the_proof_cannot_use_is_refused_where_it_is_read(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    """A file without bf16 was a bug of sitectl when a model was proven on it."""
    file = tmp_path / "new.yaml"
    text = (FOLDER / "h200-sxm.yaml").read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(SiteError) as refused:
        read_facts(file, Gpu)
    assert says in str(refused.value)
    assert "fix: " in str(refused.value)
