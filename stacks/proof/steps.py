"""What one engine step takes, in parts that are asked for often: running requests, prompt tokens, their attention.

Tables of the roofline, drawn straight between their points, so that a steady state needs few of its steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from stacks.proof.roofline import Roofline

# Prompt tokens of a step at which the table has points, and tokens that one of them attends to.
_TOKENS = (0, 16, 64, 256, 1024, 4096, 16_384)
_REACHES = (0, 512, 2048, 8192, 32_768, 131_072, 524_288)
# Prompt tokens with which attention is measured.
_PROBE = 1024
# Chunks of one prompt that are looked at by themselves; of more, so many groups.
_MOST_GROUPS = 4


class Table:
    """A function drawn straight between points; beyond the last one as before it."""

    def __init__(self, places: Sequence[float], values: Sequence[float]) -> None:
        self._borders = places[1:-1]
        points = list(zip(places, values, strict=True))
        self._lines = [(start, low, (high - low) / (end - start)) for (start, low), (end, high) in pairwise(points)]

    def at(self, place: float) -> float:
        start, value, slope = self._lines[bisect_right(self._borders, place)]
        return value + slope * (place - start)


class Chunks(NamedTuple):
    """Steps that are alike. A proof makes thousands, which a NamedTuple is made for."""

    steps: float
    extra_s: float
    """What the chunk adds to a step."""


@dataclass(frozen=True)
class StepTimes:
    """Steps of one scheduler whose running requests have a mean of `context` tokens each."""

    roofline: Roofline
    context: float
    usual: float
    """Running requests with which prompts share a step: of mixtures of experts, they have read some already."""

    def decode_s(self, running: float) -> float:
        """A step without prompts."""
        return self.roofline.step_s(decodes=max(1.0, running), context=self.context)

    def _extra_s(self, tokens: float, reach: float) -> float:
        mixed = self.roofline.step_s(prefill=tokens, reach=reach, decodes=self.usual, context=self.context)
        return max(0.0, mixed - self._usual_s)

    @cached_property
    def _usual_s(self) -> float:
        return self.decode_s(self.usual)

    @cached_property
    def _linear(self) -> Table:
        return Table(_TOKENS, [self._extra_s(tokens, 0.0) if tokens else 0.0 for tokens in _TOKENS])

    @cached_property
    def _attention(self) -> Table:
        alone = self._extra_s(_PROBE, 0.0)
        return Table(_REACHES, [max(0.0, self._extra_s(_PROBE, reach) - alone) / _PROBE for reach in _REACHES])

    def linear_s(self, tokens: float) -> float:
        """What prompt tokens add to a step, without attention."""
        return self._linear.at(tokens)

    def attention_s(self, reach: float) -> float:
        """Attention of one prompt token to so many others."""
        return self._attention.at(reach)

    def chunk_s(self, tokens: float, reach: float) -> float:
        """What a prompt's chunk adds to a step; reach: tokens before the chunk."""
        return self._linear.at(tokens) + tokens * self._attention.at(reach + tokens / 2)

    def full_chunks(self, tokens: float, cached: float, size: float) -> list[Chunks]:
        """The steps that `tokens` behind `cached` ones fill, each with `size` tokens; what is left is not in them."""
        full = math.floor(tokens / size)
        groups = min(full, _MOST_GROUPS)
        if not groups:
            return []
        count, linear_s, attention_s = full / groups, self._linear.at(size), self._attention.at
        # As `chunk_s`, whose first part is the same for all.
        return [
            Chunks(count, linear_s + size * attention_s(cached + ((place + 0.5) * count - 0.5) * size + size / 2))
            for place in range(groups)
        ]
