"""What a site requires of one model, as plain values: the proof's input."""

from __future__ import annotations

from dataclasses import dataclass

from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import GPUS, Gpu
from stacks.proof.cache import KvDtype
from stacks.proof.demand import NO_TARGETS, Load, Prices, Slo
from stacks.proof.layouts import Layout
from stacks.proof.memory import EngineVersion

# Prompt plus answer of a usual request where no load is declared.
TYPICAL_REQUEST_TOKENS = 16_384


@dataclass(frozen=True, kw_only=True)
class Order:
    """One model on one kind of GPU. What is None is searched or derived."""

    name: str
    """What clients call the model."""
    model: CatalogueModel
    gpu: str
    """Key of the hardware table."""
    gpus: int | None = None
    """GPUs of one replica."""
    layout: Layout | None = None
    one_node: bool = False
    """Whether a replica must be within one node."""
    simple: bool = False
    """Whether tensor parallelism alone is taken where nothing else needs fewer GPUs, even if that would be faster: a
    layout that follows the load would restart every replica when the load changes."""
    replicas: int | None = None
    """Copies of the model; without a load and without this, one."""
    kv_dtype: KvDtype = "fp8"
    """Elements of the cache (--kv-cache-dtype)."""
    context_tokens: int | None = None
    """Longest prompt plus answer that must fit."""
    load: Load | None = None
    slo: Slo = NO_TARGETS
    typical_request_tokens: int = TYPICAL_REQUEST_TOKENS
    """Replaces the load's mean request if no load is declared."""
    storage_bytes_per_s: float = 1.0e9
    """What one replica reads from the weights' volume."""
    download_bytes_per_s: float | None = None
    """What the first replica fetches into that volume; None where the weights are there already."""
    max_num_seqs: int | None = None
    """Set by the site over the derived one."""
    max_num_batched_tokens: int | None = None
    """Set by the site over the derived one."""
    engine: EngineVersion | None = None
    """Version of vLLM that serves it; None for any."""
    prices: Prices | None = None

    @property
    def hardware(self) -> Gpu:
        """Figures of the GPU."""
        return GPUS[self.gpu]

    @property
    def request_tokens(self) -> float:
        """Mean tokens of a request."""
        if self.load:
            return self.load.request_tokens
        return float(min(self.typical_request_tokens, self.model.max_context_tokens))

    @property
    def needed_context(self) -> int:
        """Tokens that one request must be able to have."""
        if self.context_tokens is not None:
            return self.context_tokens
        return int(self.load.longest_tokens) if self.load else 1
