"""Attention of one step: scores and values of prompts, and the caches and states that running requests read.

A model's layers are summed by how far they see once, as a proof asks for thousands of steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Mixer
from stacks.proof.cache import KvDtype, token_bytes


@dataclass(frozen=True, kw_only=True)
class Layers:
    """What layers do that see `limit` tokens at most, or all of them; each figure for one seen token."""

    limit: float = math.inf
    prompt: float = 0.0
    """Operations of a prompt token."""
    read: float = 0.0
    """Bytes that a running request reads once, however many of its tokens a step verifies."""
    score: float = 0.0
    """Operations of each of those tokens."""
    latent: float = 0.0
    """Operations of each, where all heads share one vector."""
    further: float = 0.0
    """Operations of each but the first, whose own are in what a token's vectors were fitted to take."""


def layers_of(mixer: Mixer, *, tensor: int, dtype: KvDtype) -> Iterator[Layers]:
    """What these layers do of one of `tensor` ranks; nothing of layers that keep a state instead."""
    count, size = mixer.count, token_bytes(mixer, ranks=tensor, dtype=dtype)
    match mixer:
        case catalogue.SlidingAttention():
            scored = count * 4 * mixer.heads * mixer.head_size / tensor
            yield Layers(limit=mixer.window, prompt=scored, read=count * size, score=scored)
        case catalogue.FullAttention() | catalogue.Encoder():
            scored = count * 4 * mixer.heads * mixer.head_size / tensor
            yield Layers(prompt=scored, read=count * size, score=scored)
        case catalogue.LatentAttention():
            heads = mixer.heads / tensor
            yield Layers(
                limit=mixer.indexer_tokens or math.inf,
                prompt=count * 2 * heads * (mixer.nope + mixer.rope + mixer.value_size),
                read=count * size,
                latent=count * 2 * heads * (2 * mixer.latent + mixer.rope),
            )
            if mixer.indexer_heads:
                index = count * 2 * mixer.indexer_heads * mixer.indexer_size
                yield Layers(prompt=index, read=count * mixer.indexer_size, further=index)


def state_of(mixer: Mixer, *, tensor: int) -> float:
    """Elements of the states that these layers keep of a request on one of `tensor` ranks."""
    match mixer:
        case catalogue.DeltaNet():
            return mixer.count * mixer.value_heads * mixer.key_size * mixer.value_size / tensor
        case catalogue.Mamba():
            return mixer.count * mixer.heads * mixer.head_size * mixer.state / tensor
    return 0.0


def _together(alike: list[Layers]) -> Layers:
    """Layers of one limit as one."""
    return Layers(
        limit=alike[0].limit,
        prompt=sum(layers.prompt for layers in alike),
        read=sum(layers.read for layers in alike),
        score=sum(layers.score for layers in alike),
        latent=sum(layers.latent for layers in alike),
        further=sum(layers.further for layers in alike),
    )


class Attention:
    """All layers of a model on one of `tensor` ranks."""

    def __init__(self, model: CatalogueModel, *, tensor: int, dtype: KvDtype) -> None:
        mixers = model.mixers.values()
        layers = [part for mixer in mixers for part in layers_of(mixer, tensor=tensor, dtype=dtype)]
        limits = dict.fromkeys(part.limit for part in layers)
        self._layers = [_together([part for part in layers if part.limit == limit]) for limit in limits]
        self._state = sum(state_of(mixer, tensor=tensor) for mixer in mixers)
        self._state_bytes = sum(
            mixer.state_bits / 8 * state_of(mixer, tensor=tensor)
            for mixer in mixers
            if isinstance(mixer, catalogue.DeltaNet | catalogue.Mamba)
        )

    def prompt(self, tokens: float, reach: float) -> float:
        """Operations of so many prompt tokens, each of which attends to `reach` on average."""
        seen = 6 * self._state
        for layers in self._layers:
            seen += layers.prompt * min(reach, layers.limit)
        return tokens * seen

    def decode(self, decodes: float, context: float, width: float) -> tuple[float, float, float]:
        """Bytes read, and operations over shared vectors and over heads, of requests that decode `width` tokens each.

        A request reads its cache once for all of them; the states of linear layers are written for each.
        """
        read, latent, scores = self._state_bytes * (1 + width), 0.0, 0.0
        for layers in self._layers:
            kept = min(context, layers.limit)
            read += layers.read * kept
            latent += layers.latent * kept * width
            scores += (layers.score * width + layers.further * (width - 1)) * kept
        return decodes * read, decodes * latent, decodes * scores
