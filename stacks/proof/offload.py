"""KV cache in a node's memory: what it keeps of prefixes that the GPUs have dropped, for how long, at what price.

vLLM writes each full block of a prompt there too, and none of an answer (`offload_prompt_only`), drops what was not
asked for the longest, and copies back what a later prompt begins with (v1/kv_offload of 0.32, `--kv-offloading-size`).
Blocks are known by the same salted hashes as on the GPU, so no tenant is answered from another one's. Of layers with a
window it keeps less than is counted here, so it has room for more.
"""

from __future__ import annotations

import math
from typing import Literal

from stacks.facts.catalogue import LatentAttention
from stacks.proof.case import Case
from stacks.proof.demand import Spread
from stacks.proof.figures import Figure

PCIE_SHARE = 0.5
"""Of PCIe's bandwidth. An estimate: what is copied lies in pieces, some for each layer."""
# Bytes of its memory that a starting replica has the kernel clear. An estimate, of one thread.
_CLEARED_PER_S = 4.0e9


def offload(case: Case) -> dict[str, Figure]:
    """Of a case that fits and keeps a cache: what its GiB of each replica's node hold; empty without any.

    The load's prefix_hit stays as the site declares it: how often prompts repeat is no figure of the hardware.
    """
    if not case.order.kv_offload_gib or case.fit_problems or not case.keeps_cache:
        return {}
    tokens = _tokens(case)
    fetch_s = case.cache.per_token / (case.order.hardware.pcie_bytes_per_s * PCIE_SHARE)
    figures = {
        "offload_tokens": _figure(tokens, "tokens", "GiB / (bytes of a token x ranks that keep their own)"),
        "offload_per_node": _figure(
            case.order.kv_offload_gib * max(1, case.order.hardware.gpus_per_node // case.layout.gpus),
            "GiB",
            "GiB x replicas that a node has GPUs for",
        ),
        "offload_fetch": _figure(1000 * fetch_s * 1e3, "ms", "1,000 tokens / half of PCIe's bandwidth"),
    }
    if case.order.load is not None and case.steady.computes:
        formula = "tokens / tokens that {} add a second; the oldest are dropped"
        if math.isfinite(kept_s := offload_kept_s(case)):
            figures["offload_kept"] = _figure(kept_s, "s", formula.format("prompts"))
        figures["gpu_kept"] = _figure(gpu_kept_s(case), "s", formula.format("requests"))
    return figures


def offload_kept_s(case: Case) -> float:
    """Seconds for which a node's memory keeps what was not asked for, under the declared load; infinite if none comes.

    0 where it keeps nothing.
    """
    if not case.order.kv_offload_gib:
        return 0.0
    prompts_per_s = _new_per_s(case, "prompt_tokens")
    return _tokens(case) / prompts_per_s if prompts_per_s else math.inf


def gpu_kept_s(case: Case) -> float:
    """Seconds for which a replica's GPUs keep what was not asked for, under the declared load, which it must carry."""
    used = case.steady.running * case.layout.data * case.order.request_tokens
    return max(0.0, case.cache_tokens - used) / (_new_per_s(case, "prompt_tokens") + _new_per_s(case, "answer_tokens"))


def _new_per_s(case: Case, of: Literal["prompt_tokens", "answer_tokens"]) -> float:
    """Tokens a second that a replica computes for the first time."""
    load = case.order.load
    if load is None:
        raise ValueError(f"{case.order.name} declares no load")
    fresh = 1 - load.prefix_hit if of == "prompt_tokens" else 1.0
    spread: Spread = getattr(load, of)
    return load.requests_per_s * spread.mean * fresh / case.replicas


def _tokens(case: Case) -> int:
    return int((case.order.kv_offload_gib or 0) * 2**30 / (case.cache.per_token * _copies(case)))


def cleared_s(gib: int) -> float:
    """Seconds of a start in which that memory is made ready."""
    return gib * 2**30 / _CLEARED_PER_S


def _copies(case: Case) -> int:
    """Ranks of an engine that keep bytes of their own for a token.

    Latents are whole on every rank, and kept once where there is tensor parallelism alone (vLLM 0.32,
    kv_connector/v1/offloading/config.py, replicated_layout).
    """
    layout = case.layout
    latent = all(isinstance(mixer, LatentAttention) for mixer in case.order.model.mixers.values())
    return 1 if latent and layout.pipeline == 1 else layout.tensor * layout.pipeline


def _figure(value: float, unit: str, source: str) -> Figure:
    return Figure(value=value, unit=unit, source=source, fidelity="estimated")
