"""What of a GPU's memory is left for caches: what the engine may use, less weights, activations, graphs. Bytes.

The engine measures a full step and a full batch of samples when it starts, and takes both from the cache; since 0.21
its estimate of the CUDA graphs too. So every sequence and every token of a step that a site allows costs cache, and the
proof chooses them together. Source: vLLM 0.32 v1/worker/gpu_worker.py (determine_available_memory), config/vllm.py.
Constants are held against published start-up logs (tests/unit/proof/test_published_memory.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import Gpu
from stacks.proof.cache import BLOCK_TOKENS, Cache
from stacks.proof.layouts import Layout, experts_of, layer_count
from stacks.proof.speculation import Speculation, drafter

EngineVersion = tuple[int, int]
"""Major and minor version of vLLM."""

# vLLM's own default for --gpu-memory-utilization (config/cache.py of 0.32).
MEMORY_UTILISATION = 0.92
# vLLM's default for --max-num-batched-tokens of a server on large GPUs (engine/arg_utils.py).
DEFAULT_BATCHED_TOKENS = 8192
# vLLM's default for --max-num-seqs of a server on large GPUs (engine/arg_utils.py).
ENGINE_MAX_SEQS = 1024
# Largest batch of a CUDA graph (config/vllm.py). On Blackwell twice that: not yet in 0.26, and in 0.29.
_LARGEST_GRAPH = 512
_LARGER_GRAPHS_SINCE = (0, 27)
# CUDA context, kernels and allocator slack of one rank: 0.07 to 0.46 GiB in start-up logs.
_CONTEXT_BYTES = 0.5 * 2**30
# NCCL's and custom collectives' buffers from two GPUs on: 0.3 to 0.7 GiB in logs of 0.11 and of 0.24 and later.
_COLLECTIVE_BYTES = 1.2 * 2**30
# The same in logs of 0.18 to 0.20, in which more than the weights, the step and the graphs is missing: 1.9 GiB.
_LARGER_COLLECTIVE_BYTES = 1.9 * 2**30
_LARGER_COLLECTIVES = ((0, 18), (0, 21))
# What a rank of a data-parallel replica has beside the engine's budget, as it is there before the engine counts: its
# context, and NCCL's buffers of three groups. 2.35 GiB in a study of four L4 (0.29).
_BESIDE_BYTES = 2.4 * 2**30
# Of one logit while a batch is sampled: 16-bit and 32-bit logits, probabilities; and, in engines that sort, sorted
# values and their places, sums and masks. Read off start-up logs of 0.17 to 0.31, and of 0.10 to 0.16.
_SAMPLER_BYTES = 15
_SORTING_SAMPLER_BYTES = 38
# The first version whose start-up logs show that it does not sort.
_SORTS_BEFORE = (0, 17)
# Of one layer in one captured graph, by what is in it; estimates of the engine itself in start-up logs of 0.19.
_GRAPH_BYTES = 0.23e6
_GRAPH_EXPERTS_BYTES = 0.2e6
_GRAPH_LATENT_BYTES = 0.15e6
# Since 0.26 the engine's estimate of the graphs has what linear attention makes of a step's tokens in it, which is so
# many times the values of a layer (vllm-project/vllm issues 50780 and 52872).
_GRAPH_VALUES = 8
_GRAPH_VALUES_SINCE = (0, 26)
# Kernels of routed experts keep this much more than the copies themselves: 1.0 to 1.5 in start-up logs of 0.19.
_EXPERT_KERNELS = 1.3
# Prompts of sparse attention are gathered for so many contexts at once (mla/flashmla_sparse.py), and scored within
# VLLM_SPARSE_INDEXER_MAX_LOGITS_MB.
_SPARSE_CONTEXTS = 5
_SPARSE_SCORES_BYTES = 512 * 2**20
# What a start may find missing: weights of start-up logs are up to 0.7 % more than computed, and rooms of one setting
# differ by 3 %. The longest request fits without both.
_ROOM_MARGIN = 0.03
_WEIGHTS_MARGIN = 0.01


class Reserve(NamedTuple):
    """Bytes of one GPU that are neither weights nor cache; estimated."""

    context: float
    """CUDA context and the collectives' buffers."""
    step: float
    """Activations of the largest step, the logits of the largest batch and what sampling makes of them, or pictures."""
    workspace: float
    """Buffers that kernels keep: of routed experts, of sparse attention."""
    graphs: float
    """Captured CUDA graphs."""

    @property
    def total(self) -> float:
        return self.context + self.step + self.workspace + self.graphs


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What the engine keeps free on one GPU, by what it grows with; bytes."""

    context: float
    layer: float
    """Activations of one layer, for each token of a step."""
    output: float
    """A step's output, for each of its tokens; it is still there while a batch is sampled."""
    logits: float
    """For each sequence; 0 for models that yield no tokens."""
    routed: float
    """Copies of tokens for their experts, for each token of a step."""
    sparse: float
    """Gathered prompts of sparse attention; in one buffer with the copies, as no layer needs both."""
    scores: float
    """Scores of sparse attention."""
    graph: float
    """One captured batch size."""
    transient: float = 0.0
    """What the engine takes for graphs besides, for each token of a step."""
    width: int = 1
    """Tokens of a sequence in a step; each of them gives logits."""
    largest_graph: int = _LARGEST_GRAPH
    """Largest batch that is captured."""
    picture: float = 0.0
    """The largest picture in a vision tower."""
    picture_tokens: int = 0
    """What a step gets of it; 0 for models that see no pictures, and where the catalogue has no tower."""

    def reserve(self, *, sequences: int, batched_tokens: int) -> Reserve:
        """For so many sequences of a scheduler and so many tokens of a step."""
        sampled = sequences * self.width
        pictures = max(1, batched_tokens // self.picture_tokens) if self.picture_tokens else 0
        # Their vectors stay while the step runs.
        seen = pictures * self.picture_tokens * self.output
        text = max(batched_tokens * self.layer, batched_tokens * self.output + sampled * self.logits)
        return Reserve(
            context=self.context,
            step=max(pictures * self.picture, seen + text),
            workspace=max(batched_tokens * self.routed, self.sparse) + self.scores,
            graphs=graph_sizes(min(2 * sampled, batched_tokens, self.largest_graph)) * self.graph
            + batched_tokens * self.transient,
        )


def footprint_of(
    model: CatalogueModel,
    layout: Layout,
    engine: EngineVersion | None = None,
    speculation: Speculation | None = None,
    *,
    family: str = "",
    adapted: bool = False,
) -> Footprint:
    """Of a model on one layout, and of what drafts for it.

    engine: None for any, of which the one that keeps most counts. family: of the GPU. adapted: whether it has adapters:
    each batch is then captured with and without them (vLLM 0.32 v1/cudagraph_dispatcher.py, _get_lora_cases).
    """
    together = layout.tensor * layout.data > 1
    inner = max(layer.width / (1 if layout.expert_parallel else layout.tensor) for layer in model.feed_forward.values())
    sampler = _SORTING_SAMPLER_BYTES if engine is None or engine < _SORTS_BEFORE else _SAMPLER_BYTES
    drafts = drafter(model, speculation)
    sparse = [mixer for mixer in _latents(model) if mixer.indexer_heads]
    vectors = max((mixer.latent + mixer.rope for mixer in sparse), default=0)
    return Footprint(
        context=_CONTEXT_BYTES + (_collective_bytes(engine) if together else 0.0),
        layer=2 * (4 * model.hidden + 3 * inner),
        output=2.0 * model.hidden,
        logits=float(sampler * model.vocabulary) if model.task == "generate" else 0.0,
        routed=2 * layout.data * _copied_elements(model, layout) * _EXPERT_KERNELS,
        sparse=2.0 * _SPARSE_CONTEXTS * model.max_context_tokens * vectors,
        scores=float(_SPARSE_SCORES_BYTES if sparse else 0),
        graph=_graph_bytes(model, layout) * (2 if adapted else 1) + (_graph_bytes(drafts, layout) if drafts else 0.0),
        transient=_graph_values(model, layout) if engine is None or engine >= _GRAPH_VALUES_SINCE else 0.0,
        width=speculation.width if speculation else 1,
        largest_graph=_largest_graph(engine, family),
        picture=_picture_bytes(model.vision_tower) if model.vision_tower else 0.0,
        picture_tokens=model.vision_tower.tokens if model.vision_tower else 0,
    )


def _picture_bytes(tower: catalogue.VisionTower) -> float:
    """The largest picture in the widest place of a vision tower: the activation function of a feed-forward block.

    There are then its pixels, positions, vectors, their norms, and the inner vectors before and after; whole on each
    rank, as the weights are. Source: vLLM 0.32 models/qwen3_vl.py, worker/gpu_model_runner.py (profile_run).
    """
    return 2.0 * tower.patches * (tower.pixels + 3 * tower.hidden + tower.matrices * tower.width)


def _graph_values(model: CatalogueModel, layout: Layout) -> float:
    """Bytes of a token's values in the widest layer of linear attention, so many times as the estimate has them."""
    widths = [
        mixer.value_heads * mixer.value_size for mixer in model.mixers.values() if isinstance(mixer, catalogue.DeltaNet)
    ]
    return 2.0 * _GRAPH_VALUES * max(widths, default=0) / layout.tensor


def _largest_graph(engine: EngineVersion | None, family: str) -> int:
    larger = family == "blackwell" and (engine is None or engine >= _LARGER_GRAPHS_SINCE)
    return 2 * _LARGEST_GRAPH if larger else _LARGEST_GRAPH


def _collective_bytes(engine: EngineVersion | None) -> float:
    since, until = _LARGER_COLLECTIVES
    return _LARGER_COLLECTIVE_BYTES if engine is None or since <= engine < until else _COLLECTIVE_BYTES


def _copied_elements(model: CatalogueModel, layout: Layout) -> float:
    """Elements of a token's copies for its experts: vectors in, and inner vectors of gate and value."""
    slices = 1 if layout.expert_parallel else layout.tensor * layout.data
    return max((layer.chosen * (model.hidden + 2 * layer.width / slices) for layer in experts_of(model)), default=0.0)


def _graph_bytes(model: CatalogueModel, layout: Layout) -> float:
    """A batch size is captured whole and in pieces, and keeps something for each layer."""
    layers = math.ceil(layer_count(model) / layout.pipeline)
    experts = _GRAPH_EXPERTS_BYTES if experts_of(model) else 0.0
    return 2 * layers * (_GRAPH_BYTES + experts + (_GRAPH_LATENT_BYTES if _latents(model) else 0.0))


def _latents(model: CatalogueModel) -> list[catalogue.LatentAttention]:
    return [mixer for mixer in model.mixers.values() if isinstance(mixer, catalogue.LatentAttention)]


@cache
def graph_sizes(largest: int) -> int:
    """Batch sizes that the engine captures up to `largest`: 1, 2, 4, every 8th to 256, every 16th beyond."""
    small = sum(size <= largest for size in (1, 2, 4))
    return small + len(range(8, min(largest + 1, 256), 8)) + len(range(256, largest + 1, 16))


def cache_room(gpu: Gpu, weights: float, reserve: Reserve) -> float:
    """Bytes that a GPU with so many bytes of weights has left for caches; negative where the rest is too much."""
    return gpu.memory_bytes * MEMORY_UTILISATION - weights - reserve.total


def why_beside(gpu: Gpu, layout: Layout) -> str:
    """Why a rank finds no room for what it has beside the engine's budget, or nothing.

    Source: vLLM 0.32 v1/worker/gpu_worker.py (init_device), v1/worker/utils.py (request_memory).
    """
    left = gpu.memory_bytes * (1 - MEMORY_UTILISATION)
    if layout.data == 1 or left >= _BESIDE_BYTES:
        return ""
    return (
        f"vLLM may use {MEMORY_UTILISATION:g} of a GPU's memory, and the {left / 1e9:,.1f} GB beside it are fewer than "
        f"the {_BESIDE_BYTES / 1e9:,.1f} GB that a data-parallel rank's context and collectives take there"
    )


def certain_room(room: float, weights: float) -> float:
    """Of `room` bytes, those that a start is certain to find."""
    return room - _ROOM_MARGIN * abs(room) - _WEIGHTS_MARGIN * weights


def longest_request(cache: Cache, room: float, *, batched_tokens: int) -> int:
    """Tokens of the longest single request that fits in `room` bytes, in whole blocks; 0 where not one block fits."""
    if cache.longest_bytes(BLOCK_TOKENS, batched_tokens) > room:
        return 0
    low, high = 1, 2**40
    while high - low > 1:
        middle = (low + high) // 2
        fits = cache.longest_bytes(middle * BLOCK_TOKENS, batched_tokens) <= room
        low, high = (middle, high) if fits else (low, middle)
    return low * BLOCK_TOKENS
