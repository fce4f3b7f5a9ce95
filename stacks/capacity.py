"""How a model behaves on a GPU, by arithmetic: KV cache, context, concurrency, prefill and decode time, load time.

Bytes are exact given the published figures. Times are a roofline: the larger of compute and memory traffic divided by
an efficiency that real kernels reach; they are estimates and say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pulumi

from stacks.catalogue import CatalogueModel, GroupedQueryAttention
from stacks.hardware import Gpu

# vLLM's own default for --gpu-memory-utilization (config/cache.py of 0.32).
MEMORY_UTILISATION = 0.92
# Activations, CUDA graphs and NCCL buffers of one rank; estimated from start-up logs of 8-GPU replicas.
RESERVED_BYTES = 5e9
# vLLM's KV block, in tokens (config/cache.py).
BLOCK_TOKENS = 16
# Shares of the peak that serving kernels reach; estimated.
COMPUTE_EFFICIENCY = 0.35
BANDWIDTH_EFFICIENCY = 0.60
# Two all-reduces a layer at about 10 us each over NVLink; estimated.
LAYER_OVERHEAD_S = 20e-6
# Tokenising, scheduling and the first kernel launch of a request; estimated.
PREFILL_OVERHEAD_S = 0.030


class DoesNotFitError(pulumi.RunError):
    """The weights leave no room for a KV cache on the GPUs that a replica was given."""


@dataclass(frozen=True, kw_only=True)
class ServingFigures:
    """What one replica can hold and how fast it is. Fidelity: bytes and tokens derived, times estimated."""

    weight_bytes_per_gpu: float
    kv_bytes_per_token: float
    """On one rank, over all layers."""
    kv_blocks: int
    """Blocks of BLOCK_TOKENS tokens that a replica's cache holds."""
    max_context_tokens: int
    """Longest prompt plus answer: the model's own limit, or what the cache holds if that is less."""
    max_running_requests: int
    """Requests of the declared typical size that the cache holds at once."""
    prefill_s_per_token: float
    prefill_overhead_s: float
    decode_s_per_token: float
    """Time between two tokens of a request that has the replica for itself."""
    decode_slowdown_when_full: float
    """Factor on decode_s_per_token when max_running_requests run; at least 1."""
    load_s: float
    """Time to read the weights at the storage's declared bandwidth."""


def kv_bytes_per_token(model: CatalogueModel, *, ranks: int, element_bytes: int = 1) -> float:
    """KV-cache bytes that one token takes on one tensor-parallel rank, over all layers.

    GQA: 2 x layers x heads on this rank x head size x element bytes; heads are replicated once ranks exceed them.
    MLA: layers x (latent + rope) elements of 2 bytes, or vLLM's 656-byte fp8_ds_mla entry, on every rank.
    Source: vLLM 0.32 config/model.py and v1/attention/backends/mla.
    """
    attention = model.attention
    if isinstance(attention, GroupedQueryAttention):
        heads_here = max(1.0, attention.kv_heads / ranks)
        return 2 * model.layers * heads_here * attention.head_size * element_bytes
    entry = (attention.latent + attention.rope) * 2 if element_bytes == 2 else 656
    return model.layers * (entry + attention.indexer_bytes)


def serving_figures(
    model: CatalogueModel,
    gpu: Gpu,
    *,
    ranks: int,
    typical_request_tokens: int,
    storage_bytes_per_s: float,
    kv_element_bytes: int = 1,
) -> ServingFigures:
    """Figures of one replica of `model` on `ranks` GPUs. Raises DoesNotFitError."""
    weights = model.weight_bytes / ranks
    room = gpu.memory_bytes * MEMORY_UTILISATION - RESERVED_BYTES - weights
    per_token = kv_bytes_per_token(model, ranks=ranks, element_bytes=kv_element_bytes)
    blocks = math.floor(room / per_token / BLOCK_TOKENS)
    if blocks < 1:
        usable = gpu.memory_bytes * MEMORY_UTILISATION - RESERVED_BYTES
        raise DoesNotFitError(
            f"{model.repository} does not fit: its weights take {weights / 1e9:.1f} GB on each of {ranks} GPUs, and a "
            f"GPU has {usable / 1e9:.1f} GB for weights and KV cache\n"
            f"  fix: give a replica at least {math.floor(model.weight_bytes / usable) + 1} GPUs, or another kind of GPU"
        )
    tokens = blocks * BLOCK_TOKENS
    running = max(1, tokens // typical_request_tokens)
    bandwidth = ranks * gpu.memory_bytes_per_s * BANDWIDTH_EFFICIENCY
    active_bytes = model.active_parameters * model.weight_bits / 8
    overhead = model.layers * LAYER_OVERHEAD_S
    alone = active_bytes / bandwidth + overhead
    # A full batch touches every expert, and reads every running request's cache.
    cache_bytes = running * typical_request_tokens * per_token * ranks
    full = (model.weight_bytes + cache_bytes) / bandwidth + overhead
    return ServingFigures(
        weight_bytes_per_gpu=weights,
        kv_bytes_per_token=per_token,
        kv_blocks=blocks,
        max_context_tokens=min(model.max_context_tokens, tokens),
        max_running_requests=running,
        prefill_s_per_token=2 * model.active_parameters / (ranks * gpu.fp8_flops * COMPUTE_EFFICIENCY),
        prefill_overhead_s=PREFILL_OVERHEAD_S,
        decode_s_per_token=alone,
        decode_slowdown_when_full=max(1.0, full / alone),
        load_s=model.weight_bytes / storage_bytes_per_s,
    )
