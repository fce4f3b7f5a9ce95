"""What a request keeps on a GPU between steps, in the blocks that the engine deals out. Bytes; exact given the figures.

Layers of one kind that keep alike share a table of blocks; a kind with more layers than the rarest is cut into several
groups of that size, the last one padded. All groups draw equal blocks from one pool. Source: vLLM 0.32
v1/core/kv_cache_utils.py, v1/kv_cache_interface.py, platforms/interface.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Mixer
from stacks.facts.hardware import Gpu
from stacks.proof.layouts import Layout, layer_count
from stacks.proof.speculation import Speculation, drafter

KvDtype = Literal["bf16", "fp8"]


def kv_dtype(gpu: Gpu) -> KvDtype:
    """fp8 where this kind of GPU has units for it: half the bytes per token."""
    return "fp8" if "fp8" in gpu.flops else "bf16"


# vLLM's KV block, in tokens (config/cache.py).
BLOCK_TOKENS = 16
# One token of sparse latent attention with --kv-cache-dtype=fp8 (fp8_ds_mla: 512 elements, 4 scales of 4 bytes, 64
# positional elements of 2 bytes; vLLM 0.32 v1/attention/backends/mla).
SPARSE_FP8_BYTES = 656
# Scale next to an indexer's vector of one byte per element.
INDEXER_SCALE_BYTES = 4
# Blocks that prefix caching keeps of a state: the last full one, and the running one (MambaSpec, mode "align").
_STATE_BLOCKS = 2
# Layers of a kind may be this many times the rarest kind's before they are cut into groups (kv_cache_utils.py).
_UNEVEN = 1.5

_STATES = (catalogue.DeltaNet, catalogue.Mamba)


@dataclass(frozen=True, kw_only=True)
class BlockTables:
    """Tables of blocks that are alike."""

    count: int
    """Tables; each has its own block for the same tokens."""
    block_tokens: int
    """Tokens of a block."""
    window: int = 0
    """Tokens that are kept, of layers that look back no further; 0 for all."""
    blocks: int = 0
    """Blocks of a request of any length, of layers that keep a state; 0 for those that keep tokens."""

    def held(self, tokens: float, in_flight: float) -> int:
        """Blocks of a request of that length, of which so many tokens are being computed."""
        if self.blocks:
            return self.count * self.blocks
        whole = math.ceil(tokens / self.block_tokens)
        if self.window:
            # One more, as a window need not start where a block does.
            whole = min(whole, math.ceil((self.window - 1 + in_flight) / self.block_tokens) + 1)
        return self.count * whole


@dataclass(frozen=True, kw_only=True)
class Cache:
    """What one request keeps on one GPU of a replica."""

    block_bytes: int
    """Bytes of one block of the pool; 0 where nothing is kept."""
    groups: tuple[BlockTables, ...]
    in_flight_batches: int
    """Steps that the engine has under way at once: one for each pipeline stage, and the one that it prepares."""
    lookahead: int = 0
    """Places of a request beyond its own tokens, for drafted ones."""

    def request_bytes(self, tokens: float) -> float:
        """Bytes of a request of that length that is answering."""
        tokens, in_flight = tokens + self.lookahead, 1 + self.lookahead
        return float(self.block_bytes * sum(group.held(tokens, in_flight) for group in self.groups))

    def longest_bytes(self, tokens: float, batched_tokens: int) -> float:
        """Bytes of a request of that length at its worst, as the engine counts them when it starts.

        Tokens of steps that are under way stay, whatever the window; and one block is never dealt out.
        """
        in_flight = self.in_flight_batches * batched_tokens
        return float(self.block_bytes * (1 + sum(group.held(tokens, in_flight) for group in self.groups)))

    def shared_bytes(self, batched_tokens: int) -> float:
        """Bytes that all requests together have under way beyond their windows."""
        in_flight = self.in_flight_batches * batched_tokens
        blocks = sum(group.count * math.ceil(in_flight / group.block_tokens) for group in self.groups if group.window)
        return float(self.block_bytes * (1 + blocks))

    @property
    def per_token(self) -> float:
        """Bytes that one more token takes as long as no window is full."""
        return sum(self.block_bytes * group.count / group.block_tokens for group in self.groups if not group.blocks)

    @property
    def state(self) -> float:
        """Bytes of a request, whatever its length."""
        return float(sum(self.block_bytes * group.count * group.blocks for group in self.groups))


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


def state_bytes(mixer: Mixer, *, ranks: int, drafted: int = 0) -> float:
    """Bytes that one layer keeps of a request of any length: its state and the 16-bit tail of its convolution.

    The tail is longer by the tokens that are drafted. Source: vLLM 0.32 layers/mamba/mamba_utils.py
    (gated_delta_net_state_dtype, num_spec) and models/config.py, which sets the state's type for some families alone.
    """
    match mixer:
        case catalogue.DeltaNet():
            state = mixer.value_heads * mixer.key_size * mixer.value_size
            channels = 2 * mixer.key_heads * mixer.key_size + mixer.value_heads * mixer.value_size
        case catalogue.Mamba():
            state = mixer.heads * mixer.head_size * mixer.state
            channels = mixer.heads * mixer.head_size + 2 * mixer.groups * mixer.state
        case _:
            return 0.0
    return (mixer.state_bits / 8 * state + 2 * channels * (mixer.convolution - 1 + drafted)) / ranks


def cache_of(model: CatalogueModel, layout: Layout, dtype: KvDtype, speculation: Speculation | None = None) -> Cache:
    """What one request keeps on the fullest GPU of a replica, the layers of what drafts included."""
    batches = layout.pipeline + 1
    drafts = drafter(model, speculation)
    lookahead = speculation.lookahead if speculation else 0
    share = math.ceil(layer_count(model) / layout.pipeline) / layer_count(model)
    layers = [
        (mixer, math.ceil(mixer.count * share))
        for mixer in model.mixers.values()
        if token_bytes(mixer, ranks=layout.tensor, dtype=dtype) or state_bytes(mixer, ranks=layout.tensor)
    ]
    layers += [(mixer, mixer.count) for mixer in drafts.mixers.values()] if drafts else []
    if not layers:
        return Cache(block_bytes=0, groups=(), in_flight_batches=batches)
    if all(_keeps_all(mixer) for mixer, _ in layers):
        block = sum(count * token_bytes(mixer, ranks=layout.tensor, dtype=dtype) for mixer, count in layers)
        groups = (BlockTables(count=1, block_tokens=BLOCK_TOKENS),)
        return Cache(
            block_bytes=math.ceil(block * BLOCK_TOKENS), groups=groups, in_flight_batches=batches, lookahead=lookahead
        )
    drafted = speculation.tokens if speculation else 0
    page = _page_bytes(layers, layout, dtype, drafted)
    size = _group_size([count for _, count in _alike(layers)])
    return Cache(
        block_bytes=math.ceil(size * page),
        groups=tuple(_groups(layers, size, page, layout, dtype, drafted)),
        in_flight_batches=batches,
        lookahead=lookahead,
    )


def _alike(layers: list[tuple[Mixer, int]]) -> Iterator[tuple[Mixer, int]]:
    """Layers that share tables: those that keep everything are of one kind for the engine."""
    whole = [(mixer, count) for mixer, count in layers if _keeps_all(mixer)]
    if whole:
        yield whole[0][0], sum(count for _, count in whole)
    yield from ((mixer, count) for mixer, count in layers if not _keeps_all(mixer))


def _keeps_all(mixer: Mixer) -> bool:
    return not isinstance(mixer, (catalogue.SlidingAttention, *_STATES))


def _page_bytes(layers: list[tuple[Mixer, int]], layout: Layout, dtype: KvDtype, drafted: int) -> float:
    """Bytes of one layer in a block: the largest of all kinds.

    A state is one page, and attention's blocks have as many tokens as make theirs at least as large.
    """
    tokens = max((token_bytes(mixer, ranks=layout.tensor, dtype=dtype) for mixer, _ in layers), default=0.0)
    state = max(state_bytes(mixer, ranks=layout.tensor, drafted=drafted) for mixer, _ in layers)
    if not tokens:
        return state
    return tokens * BLOCK_TOKENS * max(1, math.ceil(state / (tokens * BLOCK_TOKENS)))


def _group_size(counts: list[int]) -> int:
    """Layers of a group: the rarest kind's, or the most frequent's where that is hardly more."""
    fewest, most = min(counts), max(counts)
    return most if most < fewest * _UNEVEN else fewest


def _groups(
    layers: list[tuple[Mixer, int]], size: int, page: float, layout: Layout, dtype: KvDtype, drafted: int
) -> Iterator[BlockTables]:
    for mixer, count in _alike(layers):
        tables = math.ceil(count / size)
        if isinstance(mixer, _STATES):
            # Each drafted token has a state of its own until it is accepted (num_speculative_blocks).
            yield BlockTables(count=tables, block_tokens=1, blocks=_STATE_BLOCKS + drafted)
            continue
        window = mixer.window if isinstance(mixer, catalogue.SlidingAttention) else 0
        per_token = token_bytes(mixer, ranks=layout.tensor, dtype=dtype)
        # Layers with smaller pages have longer blocks, as far as that is whole; else their pages are padded.
        block = BLOCK_TOKENS * int(page / BLOCK_TOKENS // per_token)
        yield BlockTables(count=tables, block_tokens=block, window=window)
