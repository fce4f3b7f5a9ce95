"""What a site requires of one model, as plain values: the proof's input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from stacks.facts.catalogue import CatalogueModel, Quantisation
from stacks.facts.hardware import GPUS, Gpu
from stacks.proof.adapters import Adapters, adapter_files
from stacks.proof.cache import KvDtype, kv_dtype
from stacks.proof.demand import NO_TARGETS, Load, Prices, Slo
from stacks.proof.drafts import draft_files
from stacks.proof.layouts import Layout
from stacks.proof.memory import EngineVersion
from stacks.proof.online_quantisation import as_stored, largest_module
from stacks.proof.speculation import Speculation
from stacks.proof.weights import weight_bytes

# Prompt plus answer of a usual request where no load is declared.
TYPICAL_REQUEST_TOKENS = 16_384


class Given(int):
    """A count that the site sets over the derived one, and why."""

    reason: str

    def __new__(cls, value: int, reason: str) -> Given:
        given = super().__new__(cls, value)
        given.reason = reason
        return given


@dataclass(frozen=True, kw_only=True)
class MeasuredPace:
    """Step times of engines that run, over the computed ones."""

    pace: float
    """Their median over periods of the site's own metrics."""
    low: float
    """Nine of ten periods have no less than this, and no more than `high`; so have prompts in the median."""
    high: float
    periods: int


@dataclass(frozen=True, kw_only=True)
class Order:
    """One model on one kind of GPU. What is None is searched or derived."""

    name: str
    """What clients call the model."""
    model: CatalogueModel
    """As the engine holds it."""
    gpu: str
    """Key of the hardware table."""
    gpus: int | None = None
    """GPUs of one replica."""
    layout: Layout | None = None
    one_node: bool = False
    """Whether a replica must be within one node."""
    nodes: int = 1
    """Whole nodes that a replica takes, where it takes more than one."""
    simple: bool = False
    """Whether tensor parallelism alone is taken where nothing else needs fewer GPUs, even if that would be faster: a
    layout that follows the load would restart every replica when the load changes."""
    replicas: int | None = None
    """Copies of the model; without a load and without this, one."""
    replicas_key: str = "replicas"
    """Key below a site's `server` by which it sets their number."""
    kv_dtype: KvDtype = "fp8"
    """Elements of the cache (--kv-cache-dtype)."""
    context_tokens: int | None = None
    """Longest prompt plus answer that must fit; Given where the site overrides the derived one."""
    load: Load | None = None
    slo: Slo = NO_TARGETS
    typical_request_tokens: int = TYPICAL_REQUEST_TOKENS
    """Replaces the load's mean request if no load is declared."""
    network_bytes_per_s: float | None = None
    """What a GPU sends to another node, one direction; None for the hardware table's figure."""
    storage_bytes_per_s: float = 1.0e9
    """What one replica reads from the weights' volume."""
    shared_bytes_per_s: float | None = None
    """What all that read this volume at once get together; None for what one gets."""
    download_bytes_per_s: float | None = None
    """What the first replica fetches into that volume; None where the weights are there already."""
    downloads: int = 1
    """Downloads in a row until every replica has its files: two where one node is filled before all others."""
    max_num_seqs: int | None = None
    """Most requests that a replica runs at once; None for the derived number."""
    max_num_batched_tokens: int | None = None
    """Most tokens of one step; a plain number where the site sets the server's own key, None for the derived one."""
    prompt_step_tokens: int | None = None
    """Most tokens of one prompt in one step, while other requests run (long-prefill-token-threshold); None for all."""
    engine: EngineVersion | None = None
    """Version of vLLM that serves it; None for any."""
    prices: Prices | None = None
    speculation: Speculation | None = None
    """What drafts tokens for it; None for one token per step."""
    adapters: Adapters | None = None
    """LoRA adapters that each replica has; None for none."""
    kv_offload_gib: int = 0
    """GiB of a node's memory for the KV cache of a replica, beside its GPUs'."""
    measured: MeasuredPace | None = None
    """What its steps take on this site's GPUs, over the computed times; None where that was not measured."""
    stored: Quantisation | None = None
    """How its files store the weights, where the engine quantises these as it loads; None where it does not."""

    def on(self, gpu: str) -> Order:
        """The same on another kind of GPU, layout and replicas left to the proof. Raises KeyError if it is unknown."""
        free = replace(self, layout=None, gpus=None, replicas=None, network_bytes_per_s=None)
        # Of another kind, one node may be enough.
        measured = self.measured if gpu == self.gpu else None
        return replace(
            free,
            gpu=gpu,
            measured=measured,
            nodes=1,
            one_node=self.one_node or self.nodes > 1,
            kv_dtype=kv_dtype(GPUS[gpu]),
        )

    @property
    def file_bytes(self) -> float:
        """Bytes of all files that a replica reads: the model's as stored, those of a draft model and of adapters."""
        adapters = adapter_files(self.model, self.adapters)
        return weight_bytes(as_stored(self.model, self.stored)).files + draft_files(self.speculation) + adapters

    def read_s(self, readers: int = 1) -> float:
        """Seconds in which each of so many readers of the volume has read all files, where they start at once."""
        together = self.shared_bytes_per_s or self.storage_bytes_per_s
        return self.file_bytes / min(self.storage_bytes_per_s, together / readers)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a running request gets from a step."""
        return self.speculation.per_step if self.speculation else 1.0

    @property
    def hardware(self) -> Gpu:
        """Figures of the GPU, over the site's own network."""
        if self.nodes == 1 and not self.network_bytes_per_s:
            return GPUS[self.gpu]
        return _networked(self.gpu, self.network_bytes_per_s, self.nodes)

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


@cache
def _networked(gpu: str, bytes_per_s: float | None, nodes: int) -> Gpu:
    """Over the site's own network. Pods of several nodes have that alone between them, also in a rack of NVLink."""
    own = GPUS[gpu]
    return own.model_copy(
        update={
            "network_bytes_per_s": bytes_per_s or own.network_bytes_per_s,
            "link_domain": own.gpus_per_node if nodes > 1 else own.link_domain,
        }
    )


def loading_bytes(order: Order, layout: Layout, weights: float) -> float:
    """Most bytes of weights on a GPU during a start, where `weights` are there after it."""
    return weights + (largest_module(order.model, layout) if order.stored else 0.0)


def why_not_loaded(order: Order, layout: Layout, weights: float) -> str:
    """Why a start has no memory to quantise the weights, or nothing."""
    most, offered = loading_bytes(order, layout, weights), order.hardware.memory_bytes
    if order.stored is None or most <= offered:
        return ""
    return (
        f"a start has up to {most / 1e9:,.1f} GB of weights per GPU while it quantises them ({layout}), and "
        f"{order.gpu} has {offered / 1e9:,.1f} GB"
    )
