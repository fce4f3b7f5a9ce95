"""What LoRA adapters take: of a GPU, places from the start on, whether requests use them or not; of hosts, files.

For each of --max-loras slots and each projection that --lora-target-modules names, the engine allocates matrices A
(rank x inputs) and B (outputs x rank) of the largest rank. Tensor parallelism divides A of projections whose inputs it
divides (o_proj, down_proj) and B of those whose outputs it divides (the others); the other matrix is whole on each
rank. Projections that vLLM runs as one are there with all their parts, whichever of them an adapter changes.

Each process of a GPU keeps all adapters in its node's memory (--max-cpu-loras), undivided, each of its own rank, and
copies one to a place when a request needs it that has none.

Source: vLLM 0.32 lora/layers/base_linear.py, column_parallel_linear.py (create_lora_weights), lora/model_manager.py,
lora/worker_manager.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, DenseFeedForward
from stacks.proof.layouts import Layout, layer_count

# Of one matrix from a file to pinned memory, in the type of the model: estimated. Out of a cached file to memory that
# is not pinned, vLLM 0.32 took 0.35 ms of a CPU each, of 256 matrices of rank 16.
_MATRIX_S = 0.5e-3
# As config.json has it for models whose weights are quantised, too (lora_dtype).
_BYTES = 2
# PEFT writes 32 bits unless it is asked for fewer.
_FILE_BYTES = 4
_ATTENTION = (catalogue.FullAttention, catalogue.SlidingAttention)
_QKV, _OUT, _UP, _DOWN = "qkv_proj", "o_proj", "gate_up_proj", "down_proj"
# What the engine runs as one, by what an adapter calls it.
_RUN_AS = {
    "q_proj": _QKV,
    "k_proj": _QKV,
    "v_proj": _QKV,
    _QKV: _QKV,
    _OUT: _OUT,
    "gate_proj": _UP,
    "up_proj": _UP,
    _UP: _UP,
    _DOWN: _DOWN,
}


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One adapter of a model."""

    rank: int
    modules: frozenset[str]
    """Projections that it changes, by PEFT's names."""


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """All adapters of a model; at least one."""

    loaded: tuple[Adapter, ...]
    rank: int
    """What each slot has room for (--max-lora-rank)."""
    places: int | None = None
    """Adapters that have room on each GPU at once; None for all, so that no request waits for another's."""
    skew: float = 0.0
    """Exponent of Zipf's law, by which requests are for adapters; 0 where all are asked alike."""

    @property
    def slots(self) -> int:
        """Places on each GPU (--max-loras)."""
        return min(self.places or len(self.loaded), len(self.loaded))

    @property
    def modules(self) -> frozenset[str]:
        """Projections that any of them changes."""
        return frozenset[str]().union(*(adapter.modules for adapter in self.loaded))


def adaptable(model: CatalogueModel) -> tuple[str, ...]:
    """Projections whose adapters are computed here: of attention with keys and values, and of dense layers."""
    parts: set[str] = set()
    if any(isinstance(mixer, _ATTENTION) for mixer in model.mixers.values()):
        parts |= {_QKV, _OUT}
    # Layers of experts have projections of the same names.
    if all(isinstance(layer, DenseFeedForward) for layer in model.feed_forward.values()):
        parts |= {_UP, _DOWN}
    return tuple(module for module, run_as in _RUN_AS.items() if run_as in parts)


def adapter_bytes(model: CatalogueModel, layout: Layout, adapters: Adapters | None) -> float:
    """Bytes on the fullest GPU; 0 without adapters."""
    if adapters is None:
        return 0.0
    stage = math.ceil(layer_count(model) / layout.pipeline) / layer_count(model)
    elements = sum(_elements(model, layout.tensor, adapters.modules))
    return _BYTES * adapters.slots * adapters.rank * elements * stage


def adapter_files(model: CatalogueModel, adapters: Adapters | None) -> float:
    """Bytes of the files of all adapters; 0 without."""
    loaded = adapters.loaded if adapters else ()
    return float(sum(_FILE_BYTES * adapter.rank * sum(_elements(model, 1, adapter.modules)) for adapter in loaded))


def all_loaded_s(model: CatalogueModel, adapters: Adapters | None) -> float:
    """Seconds in which an engine that has its model loads its adapters, one after the other; 0 without.

    Only then does it serve (vLLM 0.32 entrypoints/openai/models/serving.py, init_static_loras).
    """
    loaded = adapters.loaded if adapters else ()
    return sum(2 * layer_count(model) * len(adapter.modules) * _MATRIX_S for adapter in loaded)


def host_bytes(model: CatalogueModel, layout: Layout, adapters: Adapters | None) -> float:
    """Bytes that a replica keeps in the memory of its nodes; 0 without adapters."""
    return layout.gpus * adapter_files(model, adapters) * _BYTES / _FILE_BYTES


def projections(model: CatalogueModel, layout: Layout, adapters: Adapters) -> int:
    """Projections that any adapter changes, as the engine runs them, of the layers on one GPU."""
    run_as = {_RUN_AS[module] for module in adapters.modules}
    stage = math.ceil(layer_count(model) / layout.pipeline)
    return stage * len(run_as)


def _elements(model: CatalogueModel, ranks: int, modules: frozenset[str]) -> Iterator[float]:
    """Elements of A and B for each unit of rank, on one tensor-parallel rank, of all layers."""
    run_as = {_RUN_AS[module] for module in modules}
    hidden = model.hidden
    for mixer in model.mixers.values():
        if not isinstance(mixer, _ATTENTION):
            continue
        answers = mixer.heads * mixer.head_size
        queries = answers * (2 if isinstance(mixer, catalogue.FullAttention) and mixer.gated else 1)
        # Heads repeat once ranks exceed them.
        keys = mixer.head_size * max(1.0, mixer.kv_heads / ranks)
        if _QKV in run_as:
            yield mixer.count * (3 * hidden + queries / ranks + 2 * keys)
        if _OUT in run_as:
            yield mixer.count * (answers / ranks + hidden)
    for layer in model.feed_forward.values():
        if not isinstance(layer, DenseFeedForward):
            continue
        slices = layer.matrices - 1
        if _UP in run_as:
            yield layer.count * slices * (hidden + layer.width / ranks)
        if _DOWN in run_as:
            yield layer.count * (layer.width / ranks + hidden)
