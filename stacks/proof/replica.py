"""One replica of an order on one layout: what it holds and how fast its steps are.

Nothing here depends on how many replicas there are, nor on the load's requests per second, so that a search over both
works it out once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from stacks.proof.adapter_turns import turns
from stacks.proof.adapters import adapter_bytes
from stacks.proof.batch import Scheduler
from stacks.proof.cache import BLOCK_TOKENS, Cache, cache_of
from stacks.proof.demand import GAPS
from stacks.proof.drafts import draft_weights, roofline_of
from stacks.proof.front_end import SERVERS
from stacks.proof.layouts import Layout, weights_per_gpu
from stacks.proof.memory import (
    ENGINE_MAX_SEQS,
    Footprint,
    Reserve,
    cache_room,
    certain_room,
    footprint_of,
    longest_request,
)
from stacks.proof.order import Order
from stacks.proof.roofline import Roofline

# Chunks of a prompt that a step may take; less than 512 wastes the GPU on small products.
CHUNKS = (8192, 4096, 2048, 1024, 512)
# A step is made smaller for the cache's sake only where that is worth this share of the sequences.
_WORTH = 0.9


# Models of a hundred sites, on the layouts that are searched for each.
_MOST_KEPT = 1024


def one_replica(order: Order, layout: Layout) -> OneReplica:
    """That of the order on the layout. Sites that serve the same model within the same targets share it."""
    return _kept(_Asked(order), layout)


class _Asked:
    """An order by what a replica follows from: all but how many there are, what they cost, and how often they are
    asked."""

    def __init__(self, order: Order) -> None:
        self.order = order
        load, drafts = order.load, order.speculation
        self._key = (
            order.gpu,
            order.kv_dtype,
            order.context_tokens,
            (load.prompt_tokens, load.answer_tokens) if load else None,
            order.slo,
            order.typical_request_tokens,
            order.max_num_seqs,
            order.max_num_batched_tokens,
            order.prompt_step_tokens,
            order.engine,
            order.network_bytes_per_s,
            (drafts.method, drafts.tokens, drafts.acceptance) if drafts else None,
            order.adapters,
            order.measured,
        )
        # Catalogue entries have no hash; those that were read from files are the same object wherever they are used.
        self._models = (order.model, drafts.draft if drafts else None, order.stored)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Asked):
            return NotImplemented
        same = all(own is its for own, its in zip(self._models, other._models, strict=True))
        return same and self._key == other._key


@lru_cache(maxsize=_MOST_KEPT)
def _kept(asked: _Asked, layout: Layout) -> OneReplica:
    return OneReplica(asked.order, layout)


@dataclass(frozen=True)
class OneReplica:
    """One replica of `order` on `layout`. Figures in bytes, seconds and tokens."""

    order: Order
    layout: Layout

    @cached_property
    def cache(self) -> Cache:
        return cache_of(self.order.model, self.layout, self.order.kv_dtype, self.order.speculation)

    @cached_property
    def keeps_cache(self) -> bool:
        """Whether requests leave anything on the GPU between steps; encoders do not."""
        return self.cache.request_bytes(BLOCK_TOKENS) > 0

    @cached_property
    def weights(self) -> float:
        """Bytes on the fullest GPU, those of what drafts and of adapters included."""
        own = weights_per_gpu(self.order.model, self.layout)
        adapters = adapter_bytes(self.order.model, self.layout, self.order.adapters)
        return own + draft_weights(self.order.model, self.layout, self.order.speculation) + adapters

    @cached_property
    def _footprint(self) -> Footprint:
        order = self.order
        return footprint_of(
            order.model,
            self.layout,
            order.engine,
            order.speculation,
            family=order.hardware.family,
            adapted=order.adapters is not None,
        )

    @cached_property
    def roofline(self) -> Roofline:
        order = self.order
        computed = roofline_of(order.model, order.hardware, self.layout, order.kv_dtype, order.speculation)
        return computed.at(order.measured.pace) if order.measured else computed

    @property
    def width(self) -> int:
        """What a running request takes of the tokens of a step."""
        return self.order.speculation.budgeted if self.order.speculation else 1

    @property
    def step_limit_ms(self) -> float | None:
        """No target of gaps holds while every step takes longer."""
        return self.order.slo.mean_step_ms(self.order.tokens_per_step)

    def reserve(self, sequences: int, batched_tokens: int) -> Reserve:
        """What the engine keeps free of caches."""
        return self._footprint.reserve(sequences=sequences, batched_tokens=batched_tokens)

    def room(self, sequences: int, batched_tokens: int) -> float:
        """Bytes per GPU for caches."""
        return cache_room(self.order.hardware, self.weights, self.reserve(sequences, batched_tokens))

    def longest(self, sequences: int, batched_tokens: int) -> int:
        """Tokens of the longest single request, by memory alone and with a margin for what start-ups differ by."""
        room = certain_room(self.room(sequences, batched_tokens), self.weights)
        if room <= 0:
            return 0
        if not self.keeps_cache:
            return self.order.model.max_context_tokens
        return longest_request(self.cache, room, batched_tokens=batched_tokens)

    def context(self, longest: int) -> int:
        """Tokens that a request may have: the model's limit, what fits, or what the order asks for if that is less."""
        most = min(self.order.model.max_context_tokens, longest)
        return min(most, self.order.context_tokens) if self.order.context_tokens else most

    def decode_s(self, running: float) -> float:
        """Step of so many requests of the mean size, a pipeline's batches with an equal part of them each."""
        batch = max(1.0, running / self.layout.pipeline)
        return self.roofline.step_s(decodes=batch, context=self.order.request_tokens, alone=running <= 1)

    @cached_property
    def whole_tokens(self) -> int:
        """Tokens that a step must take: an encoder's longest prompt, which vLLM does not cut; 0 for other models."""
        most = self.order.model.max_context_tokens
        return 0 if self.keeps_cache else min(most, self.order.context_tokens or most)

    @cached_property
    def _chunks(self) -> tuple[int, ...]:
        if self.order.max_num_batched_tokens:
            return (self.order.max_num_batched_tokens,)
        return CHUNKS if self.keeps_cache else (max(CHUNKS[0], self.whole_tokens),)

    @cached_property
    def _sequences(self) -> dict[int, int]:
        """By tokens of a step, the most sequences that leave room for themselves and for the longest request.

        Each sequence takes from the cache for its logits and graphs. 0 where there is no room for one.
        """
        return {tokens: self._most_sequences(tokens) for tokens in self._chunks}

    def _most_sequences(self, batched_tokens: int) -> int:
        wanted = min(self.order.needed_context, self.order.model.max_context_tokens)
        longest = self.cache.longest_bytes(max(wanted, BLOCK_TOKENS), batched_tokens)
        shared, request = self.cache.shared_bytes(batched_tokens), self.cache.request_bytes(self.order.request_tokens)

        def fits(sequences: int) -> bool:
            room = self.room(sequences, batched_tokens)
            return longest <= certain_room(room, self.weights) and shared + sequences * request <= max(0.0, room)

        # vLLM starts with no more requests than tokens of a step (SchedulerConfig); each takes as many as it verifies.
        most = min(ENGINE_MAX_SEQS, batched_tokens // self.width)
        if fits(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def slots(self, batched_tokens: int) -> int:
        """max-num-seqs of a scheduler: what the cache holds, and what a step can serve within the target."""
        if batched_tokens not in self._slots:
            self._slots[batched_tokens] = self._slots_of(batched_tokens)
        return self._slots[batched_tokens]

    @cached_property
    def _slots(self) -> dict[int, int]:
        return {}

    def _slots_of(self, batched_tokens: int) -> int:
        if self.order.max_num_seqs:
            return self.order.max_num_seqs
        most = max(1, self._sequences[batched_tokens])
        limit = self.step_limit_ms
        if limit is None or self.decode_s(most) * 1e3 <= limit or self.decode_s(1) * 1e3 > limit:
            return most
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.decode_s(middle) * 1e3 <= limit else (low, middle)
        return low

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """What max-num-batched-tokens may be, largest first. A step has a token for each request."""
        if len(self._chunks) == 1:
            return self._chunks
        # Activations of a large step take from the cache.
        best = max(self._sequences.values())
        worth = tuple(size for size in CHUNKS if self._sequences[size] >= max(1, _WORTH * best)) or CHUNKS[-1:]
        # vLLM starts with no more requests than tokens of a step.
        least = (self.order.max_num_seqs or 1) * self.width
        large = tuple(size for size in CHUNKS if size >= least) or CHUNKS[:1]
        worth = tuple(size for size in worth if size in large) or large[-1:]
        # Without targets of gaps the largest is the best: prompts wait the less the fewer steps they take.
        return worth if self.order.slo.of_metrics(*GAPS) and self.order.load else worth[:1]

    @cached_property
    def adapted_at_once(self) -> int:
        """Requests that run at once by the places that their adapters have."""
        taken = turns(self.order.adapters)
        return max(1, int(taken.at_once)) if taken else ENGINE_MAX_SEQS

    def scheduler(self, batched_tokens: int) -> Scheduler:
        """One of its schedulers, with steps of that size."""
        if batched_tokens not in self._schedulers:
            slots = min(self.slots(batched_tokens), self.adapted_at_once)
            self._schedulers[batched_tokens] = Scheduler(
                roofline=self.roofline,
                slots=slots,
                batched_tokens=batched_tokens,
                prompt_step_tokens=self.order.prompt_step_tokens or batched_tokens,
                stages=self.layout.pipeline,
                generates=self.order.model.task == "generate",
                context=self.context(self.longest(slots, batched_tokens)),
                tokens_per_step=self.order.tokens_per_step,
                tokens_variance=self.order.speculation.variance if self.order.speculation else 0.0,
                width=self.width,
                asynchronous=self.asynchronous,
                servers=SERVERS / self.layout.data,
            )
        return self._schedulers[batched_tokens]

    @property
    def asynchronous(self) -> bool:
        """Whether vLLM schedules a step during the one before: its default, but not for models without answers, nor
        with these drafts (0.32, config/vllm.py)."""
        drafts = self.order.speculation
        return self.order.model.task == "generate" and (drafts is None or drafts.method not in ("ngram", "draft"))

    @cached_property
    def _schedulers(self) -> dict[int, Scheduler]:
        return {}

    def held(self, sequences: int, batched_tokens: int) -> int:
        """Requests of the mean size that one scheduler's cache holds at once."""
        if not self.keeps_cache:
            return ENGINE_MAX_SEQS
        room = self.room(sequences, batched_tokens) - self.cache.shared_bytes(batched_tokens)
        return int(max(0.0, room) // self.cache.request_bytes(self.order.request_tokens))
