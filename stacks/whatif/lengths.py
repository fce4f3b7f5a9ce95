"""Lengths of prompts in conversations, so that a declared share of their tokens was in an earlier prompt.

A conversation draws the lengths of all its prompts from the declared distribution and asks them in ascending order, so
that each prompt begins with the one before it. Each length is still distributed as declared, and of n prompts only the
longest is new text: fresh share = E[longest of n] / (n x mean).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from stacks.proof.demand import Spread

# Prompts of one conversation at most; a hit share beyond what they reach stays below what is declared.
MOST_TURNS = 1000
# Points of the distribution by which the longest of n is computed.
_POINTS = 2000


@dataclass(frozen=True)
class Turns:
    """How many prompts a conversation has: `fewer`, or one more with the probability `more`."""

    fewer: int
    more: float

    def draw(self, random: Random) -> int:
        """Prompts of one conversation."""
        return self.fewer + (random.random() < self.more)


def fresh_tokens(prompt: Spread, turns: int, longest: int) -> float:
    """Mean tokens of a conversation's longest prompt, which is all of it that is ever new; none beyond `longest`."""
    shares = ((place + 0.5) / _POINTS for place in range(_POINTS))
    return sum(min(longest, prompt.quantile(share ** (1 / turns))) for share in shares) / _POINTS


@lru_cache(maxsize=256)
def turns_for(prompt: Spread, hit: float, longest: int) -> Turns:
    """Conversations of which this share of the prompts' tokens was in the prompt before.

    With probability p one prompt more: fresh share = ((1 - p) F(n) + p F(n + 1)) / ((n + p) x mean), solved for p.
    """
    mean = fresh_tokens(prompt, 1, longest)

    def fresh_share(turns: int) -> float:
        return fresh_tokens(prompt, turns, longest) / (turns * mean)

    wanted = 1 - hit
    if fresh_share(MOST_TURNS) >= wanted:
        return Turns(MOST_TURNS, 0.0)
    low, high = 1, MOST_TURNS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fresh_share(middle) >= wanted else (low, middle)
    at_low, at_high = fresh_tokens(prompt, low, longest), fresh_tokens(prompt, high, longest)
    missing = at_low - wanted * mean * low
    more = missing / (missing + wanted * mean * high - at_high) if missing > 0 else 0.0
    return Turns(low, min(1.0, max(0.0, more)))


def seeded(seed: str, purpose: str) -> Random:
    """Random numbers for one purpose, so that more of them for one leave the others as they are."""
    return Random(f"{seed} {purpose}")  # noqa: S311 - a simulation, not a secret


def drawn(spread: Spread, random: Random, most: int) -> int:
    """One length: at least a token, at most `most`."""
    return length_at(spread, random.random(), most)


def length_at(spread: Spread, share: float, most: int) -> int:
    """The length that this share does not exceed, in whole tokens."""
    # inv_cdf takes what is strictly between 0 and 1.
    return min(most, max(1, round(spread.quantile(min(1 - 1e-12, max(1e-12, share))))))
