"""What one engine step takes, in parts that are asked for often: running requests, prompt tokens, their attention.

Tables of the roofline, drawn straight between their points, so that a steady state needs few of its steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from stacks.proof.roofline import Roofline

# Prompt tokens of a step at which the table has points, and tokens that one of them attends to.
_TOKENS = (0, 16, 64, 256, 1024, 4096, 16_384)
_REACHES = (0, 512, 2048, 8192, 32_768, 131_072, 524_288)
# Prompt tokens with which attention is measured.
_PROBE = 1024
# Chunks of one prompt that are looked at by themselves; of more, so many groups.
_MOST_GROUPS = 4


@dataclass(frozen=True)
class Table:
    """A function drawn straight between points; beyond the last one as before it."""

    places: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, place: float) -> float:
        upper = min(len(self.places) - 1, max(1, bisect_right(self.places, place)))
        start, end = self.places[upper - 1], self.places[upper]
        low, high = self.values[upper - 1], self.values[upper]
        return low + (high - low) * (place - start) / (end - start)


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """Steps that are alike."""

    count: float
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
        return Table(_TOKENS, tuple(self._extra_s(tokens, 0.0) if tokens else 0.0 for tokens in _TOKENS))

    @cached_property
    def _attention(self) -> Table:
        alone = self._extra_s(_PROBE, 0.0)
        return Table(_REACHES, tuple(max(0.0, self._extra_s(_PROBE, reach) - alone) / _PROBE for reach in _REACHES))

    def linear_s(self, tokens: float) -> float:
        """What prompt tokens add to a step, without attention."""
        return self._linear.at(tokens)

    def attention_s(self, reach: float) -> float:
        """Attention of one prompt token to so many others."""
        return self._attention.at(reach)

    def chunk_s(self, tokens: float, reach: float) -> float:
        """What a prompt's chunk adds to a step; reach: tokens before the chunk."""
        return self.linear_s(tokens) + tokens * self.attention_s(reach + tokens / 2)

    def full_chunks(self, tokens: float, cached: float, size: float) -> list[Chunks]:
        """The steps that `tokens` behind `cached` ones fill, each with `size` tokens; what is left is not in them."""
        full = math.floor(tokens / size)
        groups = min(full, _MOST_GROUPS)
        linear_s, attention_s = self.linear_s(size) if groups else 0.0, self.attention_s
        # As `chunk_s`, whose first part is the same for all.
        return [
            Chunks(
                count=full / groups,
                extra_s=linear_s + size * attention_s(cached + ((place + 0.5) * full / groups - 0.5) * size + size / 2),
            )
            for place in range(groups)
        ]
