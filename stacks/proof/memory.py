"""What a request keeps on a GPU, and how much room a GPU has for it. Bytes; exact given the published figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Mixer
from stacks.facts.hardware import Gpu
from stacks.proof.layouts import Layout, experts_of, layer_count, weights_per_gpu

KvDtype = Literal["bf16", "fp8"]

# vLLM's own default for --gpu-memory-utilization (config/cache.py of 0.32).
MEMORY_UTILISATION = 0.92
# vLLM's KV block, in tokens (config/cache.py).
BLOCK_TOKENS = 16
# vLLM's default for --max-num-batched-tokens of a server on large GPUs (engine/arg_utils.py).
DEFAULT_BATCHED_TOKENS = 8192
# One token of sparse latent attention with --kv-cache-dtype=fp8 (fp8_ds_mla: 512 elements, 4 scales of 4 bytes, 64
# positional elements of 2 bytes; vLLM 0.32 v1/attention/backends/mla).
SPARSE_FP8_BYTES = 656
# Scale next to an indexer's vector of one byte per element.
INDEXER_SCALE_BYTES = 4
# CUDA context, CUDA graphs and allocator slack of one rank; estimated from start-up logs.
CONTEXT_BYTES = 2.0e9
# NCCL's buffers from two GPUs on (systems/*.yaml of aiconfigurator-core 0.12.0).
NCCL_BYTES = 0.41e9


@dataclass(frozen=True, kw_only=True)
class Cache:
    """What one request keeps on one GPU of a replica."""

    growing: float
    """Bytes a token, of layers that keep the whole context."""
    windows: tuple[tuple[float, int], ...]
    """Bytes a token and tokens kept, of layers that keep a window."""
    state: float
    """Bytes a request, whatever its length."""

    def request_bytes(self, tokens: float) -> float:
        """Bytes of a request of that length."""
        held = sum(size * min(tokens, window + BLOCK_TOKENS) for size, window in self.windows)
        return self.growing * tokens + held + self.state

    @property
    def per_token(self) -> float:
        """Bytes that one more token takes as long as no window is full."""
        return self.growing + sum(size for size, _ in self.windows)


def token_bytes(mixer: Mixer, *, ranks: int, dtype: KvDtype) -> float:
    """Bytes that one layer keeps of a token on one tensor-parallel rank.

    Keys and values: 2 x heads on this rank x head size x element bytes; heads repeat once ranks exceed them. Latent:
    one vector, whole on every rank. Source: vLLM 0.32 config/model.py (get_num_kv_heads), v1/kv_cache_interface.py.
    """
    element = 1 if dtype == "fp8" else 2
    match mixer:
        case catalogue.FullAttention() | catalogue.SlidingAttention():
            return 2 * max(1.0, mixer.kv_heads / ranks) * mixer.head_size * element
        case catalogue.LatentAttention():
            index = mixer.indexer_size + INDEXER_SCALE_BYTES if mixer.indexer_heads else 0
            if mixer.indexer_heads and dtype == "fp8":
                return SPARSE_FP8_BYTES + index
            return (mixer.latent + mixer.rope) * element + index
        case _:
            return 0.0


def state_bytes(mixer: Mixer, *, ranks: int) -> float:
    """Bytes that one layer keeps of a request of any length: float32 state and the 16-bit tail of its convolution."""
    match mixer:
        case catalogue.DeltaNet():
            state = mixer.value_heads * mixer.key_size * mixer.value_size
            channels = 2 * mixer.key_heads * mixer.key_size + mixer.value_heads * mixer.value_size
        case catalogue.Mamba():
            state = mixer.heads * mixer.head_size * mixer.state
            channels = mixer.heads * mixer.head_size + 2 * mixer.groups * mixer.state
        case _:
            return 0.0
    return (4 * state + 2 * channels * (mixer.convolution - 1)) / ranks


def cache_of(model: CatalogueModel, layout: Layout, dtype: KvDtype) -> Cache:
    """What one request keeps on the fullest GPU of a replica."""
    stage = math.ceil(layer_count(model) / layout.pipeline) / layer_count(model)
    growing, windows, state = 0.0, [], 0.0
    for mixer in model.mixers.values():
        size = mixer.count * stage * token_bytes(mixer, ranks=layout.tensor, dtype=dtype)
        if isinstance(mixer, catalogue.SlidingAttention):
            windows.append((size, mixer.window))
        else:
            growing += size
        state += mixer.count * stage * state_bytes(mixer, ranks=layout.tensor)
    return Cache(growing=growing, windows=tuple(windows), state=state)


def reserved_bytes(model: CatalogueModel, layout: Layout, *, batched_tokens: int) -> float:
    """Bytes a GPU that are neither weights nor cache: context, NCCL, and the activations of one full step; estimated.

    A step holds about eight vectors of the hidden size a token, the inner vectors of one feed-forward layer, and with
    experts a copy of the token for each chosen one; 16 bits an element.
    """
    inner = max(layer.width / (1 if layout.expert_parallel else layout.tensor) for layer in model.feed_forward.values())
    elements = 8 * model.hidden + 2 * inner
    for layer in experts_of(model)[:1]:
        elements = max(elements, 4 * model.hidden + layer.chosen * (model.hidden + 2 * inner) / 2)
    logits = 512 * model.vocabulary * 4 / layout.tensor if model.task == "generate" else 0.0
    nccl = NCCL_BYTES if layout.gpus > 1 else 0.0
    return CONTEXT_BYTES + nccl + batched_tokens * elements * 2 + logits


def cache_room(model: CatalogueModel, gpu: Gpu, layout: Layout, *, batched_tokens: int) -> float:
    """Bytes that the fullest GPU has left for caches; negative where the weights alone are too much."""
    reserved = reserved_bytes(model, layout, batched_tokens=batched_tokens)
    return gpu.memory_bytes * MEMORY_UTILISATION - reserved - weights_per_gpu(model, layout)


def longest_request(cache: Cache, room: float) -> int:
    """Tokens of the longest single request that fits in `room` bytes, in whole blocks; 0 where not one block fits."""
    if cache.request_bytes(BLOCK_TOKENS) > room:
        return 0
    low, high = 1, 2**40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cache.request_bytes(middle * BLOCK_TOKENS) <= room else (low, middle)
    return low * BLOCK_TOKENS
