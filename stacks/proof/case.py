"""One order on one layout with a number of replicas: what it holds, how fast it is, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from floor.counts import counted
from stacks.proof.cache import BLOCK_TOKENS, Cache
from stacks.proof.demand import GAPS, LatencyTarget, Metric, Slo
from stacks.proof.drafts import why_not_drafted_whole, why_undrafted
from stacks.proof.front_end import MOST_BUSY_SERVER
from stacks.proof.layouts import Layout, why_illegal
from stacks.proof.memory import ENGINE_MAX_SEQS, MEMORY_UTILISATION, Reserve, why_beside
from stacks.proof.order import Order, why_not_loaded
from stacks.proof.replica import OneReplica, one_replica
from stacks.proof.roofline import Roofline
from stacks.proof.serving import Steady

# The chunk moves the mean time between tokens by less.
_SAME_MEAN = 1.2
# Most of a step that a batch may be on its way between nodes: beyond it, the network decides how fast the model is, and
# of it the proof knows a bandwidth and no more.
MOST_ON_THE_WAY = 0.25

Kind = Literal["illegal", "precision", "weights", "context", "setting", "overload"] | Metric


@dataclass(frozen=True, kw_only=True)
class Shortcoming:
    """One reason why an order does not work."""

    kind: Kind
    text: str
    """What, got, needed; without the fix."""
    target: LatencyTarget | None = None
    """The target that is missed, where it is one."""


def _without_settings(order: Order) -> Iterator[Order]:
    """The order with what the site sets over the proof left to the proof."""
    if order.max_num_seqs or order.max_num_batched_tokens:
        yield replace(order, max_num_seqs=None, max_num_batched_tokens=None)


@dataclass(frozen=True)
class Case:
    """`order` on `layout` with `replicas`. Figures in bytes, seconds and tokens."""

    order: Order
    layout: Layout
    replicas: int

    @cached_property
    def replica(self) -> OneReplica:
        """One of them."""
        return one_replica(self.order, self.layout)

    def under(self, order: Order) -> Case:
        """The same under an order that prefers other layouts (`simple`, `layout`), which changes no figure of it."""
        other = Case(order, self.layout, self.replicas)
        # As a cached property keeps it.
        other.__dict__.update(replica=self.replica, _steadies=self._steadies)
        return other

    def again(self, *, replicas: int | None = None, requests_per_s: float | None = None) -> Case:
        """The same with other replicas or another rate of requests; what one replica is, is not worked out again."""
        order = self.order
        if requests_per_s is not None and order.load:
            order = replace(order, load=replace(order.load, requests_per_s=requests_per_s))
        other = Case(order, self.layout, replicas or self.replicas)
        # As a cached property keeps it.
        other.__dict__["replica"] = self.replica
        return other

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.layout.gpus * self.replicas

    @property
    def schedulers(self) -> int:
        """Schedulers over all replicas: one for each data-parallel rank."""
        return self.replicas * self.layout.data

    @property
    def cache(self) -> Cache:
        return self.replica.cache

    @property
    def keeps_cache(self) -> bool:
        """Whether requests leave anything on the GPU between steps; encoders do not."""
        return self.replica.keeps_cache

    @property
    def weights(self) -> float:
        """Bytes of weights per GPU."""
        return self.replica.weights

    @property
    def roofline(self) -> Roofline:
        return self.replica.roofline

    @cached_property
    def reserve(self) -> Reserve:
        """What the engine keeps free of caches, with its settings as they are derived."""
        return self.replica.reserve(self.slots, self.batched_tokens)

    @cached_property
    def room(self) -> float:
        """Bytes per GPU for caches, with the settings as they are derived."""
        return self.replica.room(self.slots, self.batched_tokens)

    @property
    def usable(self) -> float:
        """Bytes per GPU for weights and caches."""
        return self.order.hardware.memory_bytes * MEMORY_UTILISATION - self.reserve.total

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest single request, by memory alone and with a margin for what start-ups differ by."""
        return self.replica.longest(self.slots, self.batched_tokens)

    @property
    def context(self) -> int:
        """Tokens that a request may have: the model's limit, what fits, or what the order asks for if that is less."""
        return self.replica.context(self.longest)

    @cached_property
    def cache_tokens(self) -> int:
        """Tokens of requests of the mean size that one replica holds, in whole blocks, over its data-parallel ranks."""
        if not self.keeps_cache or self.room <= 0:
            return 0
        size = self.order.request_tokens
        tokens = self.room / self.cache.request_bytes(size) * size
        return int(tokens // BLOCK_TOKENS) * BLOCK_TOKENS * self.layout.data

    @cached_property
    def held(self) -> int:
        """Requests of the mean size that one scheduler's cache holds at once."""
        return self.replica.held(self.slots, self.batched_tokens)

    @property
    def slots(self) -> int:
        """max-num-seqs of a scheduler: what the cache holds, and what a step can serve within the target."""
        return self.replica.slots(self.batched_tokens)

    @property
    def width(self) -> int:
        """What a running request takes of the tokens of a step."""
        return self.replica.width

    def token_s(self, running: float) -> float:
        """Time per token of each of so many requests of the mean size."""
        return self.decode_s(running) / self.order.tokens_per_step

    def decode_s(self, running: float) -> float:
        """Step of so many requests of the mean size, a pipeline's batches with an equal part of them each."""
        return self.replica.decode_s(running)

    def _keeps(self, size: int) -> bool:
        return self._steady(size).stable and self._steady(size).within(self.order.slo)

    @cached_property
    def _smallest_helps(self) -> bool:
        """Whether the smallest chunk keeps targets of gaps that the largest misses; it leaves their mean as it is."""
        largest, smallest, slo = (
            self._steady(self.replica.sizes[0]),
            self._steady(self.replica.sizes[-1]),
            self.order.slo,
        )
        gaps, mean_ms = slo.of_metrics(*GAPS), self.replica.step_limit_ms
        if mean_ms is None or not largest.stable or largest.itl_mean_s * 1e3 > _SAME_MEAN * mean_ms:
            return False
        return not largest.within(Slo(gaps)) and smallest.within(Slo(gaps))

    @cached_property
    def batched_tokens(self) -> int:
        """max-num-batched-tokens: the largest with which every target holds, as larger steps carry more.

        Where none does: the smallest if that keeps the targets of gaps, else the largest.
        """
        if len(self.replica.sizes) == 1 or self._keeps(self.replica.sizes[0]) or not self._smallest_helps:
            return self.replica.sizes[0]
        return next((size for size in self.replica.sizes if self._keeps(size)), self.replica.sizes[-1])

    def _steady(self, batched_tokens: int) -> Steady:
        load = self.order.load
        if load is None:
            raise ValueError("no load is declared")
        if batched_tokens not in self._steadies:
            engine = self.replica.scheduler(batched_tokens)
            self._steadies[batched_tokens] = Steady(engine, load, self.schedulers)
        return self._steadies[batched_tokens]

    @cached_property
    def _steadies(self) -> dict[int, Steady]:
        return {}

    @cached_property
    def steady(self) -> Steady:
        """The declared load in its steady state. Raises ValueError where none is declared."""
        return self._steady(self.batched_tokens)

    @cached_property
    def fit_problems(self) -> list[Shortcoming]:
        """Why no replica could start or hold the longest request."""
        order, layout = self.order, self.layout
        undrafted = why_undrafted(order.model, layout, order.speculation)
        if illegal := why_illegal(order.model, layout) or undrafted or self._slow_links():
            return [Shortcoming(kind="illegal", text=f"{layout}: {illegal}")]
        if order.one_node and layout.gpus > order.hardware.gpus_per_node:
            most = order.hardware.gpus_per_node
            text = f"{layout} is {layout.gpus} GPUs, and a node with {order.gpu} has {most}; a replica is on one node"
            return [Shortcoming(kind="illegal", text=text)]
        if beside := why_beside(order.hardware, layout):
            return [Shortcoming(kind="illegal", text=f"{layout} on {order.gpu}: {beside}")]
        if "fp8" not in order.hardware.flops and (order.kv_dtype == "fp8" or order.stored):
            what = "the cache is" if order.kv_dtype == "fp8" else "the weights are"
            return [Shortcoming(kind="precision", text=f"{order.gpu} has no FP8 units, and {what} to be fp8")]
        if self.longest < BLOCK_TOKENS:
            if any(replace(self, order=order).longest >= BLOCK_TOKENS for order in _without_settings(order)):
                return [Shortcoming(kind="setting", text=self._too_many())]
            return [Shortcoming(kind="weights", text=self._too_large())]
        wanted = order.needed_context
        shortcomings = self._of_inputs()
        if wanted > order.model.max_context_tokens:
            most = order.model.max_context_tokens
            text = f"a context of {wanted:,} tokens is asked for, and the model's limit is {most:,}"
            shortcomings.append(Shortcoming(kind="context", text=text))
        elif wanted > self.context or order.request_tokens > self.longest:
            longest = max(wanted, int(order.request_tokens))
            text = f"requests of {longest:,} tokens are asked for, and {layout} holds {self.longest:,}"
            shortcomings.append(Shortcoming(kind="context", text=text))
        if order.max_num_seqs and order.max_num_seqs > self.held:
            text = (
                f"max_num_seqs is {order.max_num_seqs:,}, and the cache holds {self.held:,} requests of the mean size"
            )
            shortcomings.append(Shortcoming(kind="setting", text=text))
        elif (order.max_num_seqs or 0) * self.width > self.batched_tokens:
            text = (
                f"max_num_seqs is {order.max_num_seqs:,} and max_num_batched_tokens {self.batched_tokens:,}: "
                "vLLM starts with no more requests than tokens of a step"
            )
            shortcomings.append(Shortcoming(kind="setting", text=text))
        if self.batched_tokens < self.replica.whole_tokens:
            text = (
                f"max_num_batched_tokens is {self.batched_tokens:,}, and prompts have up to "
                f"{self.replica.whole_tokens:,} tokens: an encoder reads each in one step"
            )
            shortcomings.append(Shortcoming(kind="setting", text=text))
        return shortcomings

    @property
    def on_the_way(self) -> float:
        """Share of a full step of prompts that a batch is on its way between nodes; 0 where it stays on one."""
        tokens = self.replica.sizes[0]
        return self.roofline.between_nodes_s(tokens) / self.roofline.step_s(
            prefill=tokens, reach=tokens / 2, alone=True
        )

    def _slow_links(self) -> str:
        if self.order.nodes == 1 or (share := self.on_the_way) <= MOST_ON_THE_WAY:
            return ""
        network = self.order.hardware.network_bytes_per_s
        return (
            f"over {self.order.nodes} nodes, a batch of {self.replica.sizes[0]:,} tokens is between them "
            f"for {share:.0%} of its step at {network / 1e9:.3g} GB/s a GPU, and at most {MOST_ON_THE_WAY:.0%} is taken"
        )

    def _of_inputs(self) -> list[Shortcoming]:
        """What a start with quantised weights, or long requests without drafts, would make untrue."""
        order = self.order
        texts: dict[Kind, str] = {
            "setting": self._why_no_cap(),
            "weights": why_not_loaded(order, self.layout, self.weights),
            "context": why_not_drafted_whole(order.speculation, self.context),
        }
        return [Shortcoming(kind=kind, text=text) for kind, text in texts.items() if text]

    def _why_no_cap(self) -> str:
        most = self.order.prompt_step_tokens
        if most is None:
            return ""
        if not self.keeps_cache:
            return f"long_prefill_token_threshold is {most:,}, and an encoder reads each prompt in one step"
        if self.order.max_num_batched_tokens and most >= self.order.max_num_batched_tokens:
            return f"long_prefill_token_threshold is {most:,}, and a step has {self.batched_tokens:,} tokens for all"
        # vLLM 0.32 does not start with it (vllm/config/scheduler.py). A context that the load does not fit into is
        # reported where it is set.
        longest = self.order.load.longest_tokens if self.order.load else 0
        if most > self.context >= longest:
            return f"long_prefill_token_threshold is {most:,}, and a request has at most {self.context:,} tokens"
        return ""

    def _too_large(self) -> str:
        reserved = self.reserve.total
        needed, offered = self.weights + reserved, self.order.hardware.memory_bytes * MEMORY_UTILISATION
        return (
            f"needs more than {needed / 1e9:,.1f} GB per GPU on {counted(self.layout.gpus, 'GPU')} ({self.layout}: "
            f"{self.weights / 1e9:,.1f} GB of weights, {reserved / 1e9:,.1f} GB of context, activations and graphs), "
            f"and {self.order.gpu} has {offered / 1e9:,.1f} GB"
        )

    def _too_many(self) -> str:
        settings = {
            "max_num_seqs": self.order.max_num_seqs,
            "max_num_batched_tokens": self.order.max_num_batched_tokens,
        }
        given = " and ".join(f"{key} {value:,}" for key, value in settings.items() if value)
        return (
            f"{given}: the engine keeps {self.reserve.total / 1e9:,.1f} GB per GPU for activations, logits and graphs "
            "of so many, which leaves nothing for the cache"
        )

    @cached_property
    def load_problems(self) -> list[Shortcoming]:
        """Why the declared load is not carried within its targets; only where it fits."""
        if not self.order.load or self.fit_problems:
            return []
        if self._keeps(self.batched_tokens):
            return []
        if not self.steady.stable:
            rate, limit = self.order.load.requests_per_s, self.replica.step_limit_ms
            text = f"{rate:g} requests/s are more than {self.replicas} x {self.layout} can carry"
            if self.steady.computes:
                busy, most = 100 * self.steady.server.busy, 100 * MOST_BUSY_SERVER
                text += f"; their front end, one API server a replica, would need {busy:.3g} % of its time, and has "
                text += f"{most:.3g} %"
            elif self.order.adapters and self.replica.adapted_at_once < self.slots:
                adapters = self.order.adapters
                text += f"; {self.replica.adapted_at_once} at once per scheduler, as {adapters.slots} of its "
                text += f"{len(adapters.loaded)} adapters have a place"
            elif limit is not None and not self.order.max_num_seqs and self.slots < min(self.held, ENGINE_MAX_SEQS):
                text += f"; {self.slots} at once per scheduler, as a step of more takes longer than {limit:,.0f} ms"
            return [Shortcoming(kind="overload", text=text)]
        return [
            Shortcoming(kind=target.metric, text=missed(self.steady, target), target=target)
            for target in self.order.slo.targets
            if not self.steady.keeps(target)
        ]

    @property
    def problems(self) -> list[Shortcoming]:
        """Everything that is wrong; empty where the order works."""
        return [*self.fit_problems, *self.load_problems]


def missed(steady: Steady, target: LatencyTarget) -> str:
    """What is computed for a target, and the target: `ITL p95 is 64 ms; target 60 ms`."""
    got, mean = steady.quantile_s(target.metric, target.share) * 1e3, steady.mean_gap_s(target.metric) * 1e3
    figure = f"{target.title} is {got:,.0f} ms"
    if target.metric in GAPS and mean > max(got, target.ms):
        figure += f", and the mean time between tokens {mean:,.0f} ms"
    return f"{figure}; target {target.ms:,.0f} ms"
