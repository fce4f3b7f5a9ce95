"""The KV cache of one scheduler: texts that running requests hold, and texts of finished ones until room is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stacks.proof.cache import BLOCK_TOKENS
from stacks.whatif.traffic import PromptPart


class _Text:
    """Tokens of one text that are in the cache, and how many running requests hold them."""

    __slots__ = ("holders", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens, self.holders = tokens, 0


class PrefixCache:
    """Tokens by text. What no running request holds is dropped from its end, the least recently used text first.

    As vLLM's block pool does (v1/core/block_pool.py, single_type_kv_cache_manager.py of 0.32): blocks of a finished
    request stay until others need them, its last ones go first, and a prompt finds its blocks from the first one on.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Tokens."""
        self.answers = 0.0
        """Tokens that running requests have written so far; of a step that gives several, the mean of each request."""
        self._texts: dict[int, _Text] = {}
        # Keys that no request holds, the least recently used first; a dict keeps the order.
        self._idle: dict[int, None] = {}
        self._tokens = 0
        self._held = 0

    @property
    def in_use(self) -> float:
        """Tokens that cannot be dropped: prompts and answers of running requests."""
        return self._held + self.answers

    @property
    def room(self) -> float:
        """Tokens that could still be put in, if all that is idle were dropped."""
        return self.capacity - self.in_use

    @property
    def share(self) -> float:
        """Share in use, as vLLM reports it: what could be dropped counts as free."""
        return min(1.0, self.in_use / self.capacity)

    def hit(self, parts: Sequence[PromptPart], prompt: int, *, again: bool = False) -> int:
        """Tokens of a prompt that need not be computed: whole blocks, and never the last token.

        again: of a request that ran here before, whose own prompt is a known text by now.
        """
        tokens = 0
        for part in parts:
            text = self._texts.get(part.key)
            known = min(text.tokens, part.tokens if again else part.known) if text else 0
            tokens += known
            if known < part.tokens:
                break
        return min(tokens, prompt - 1) // BLOCK_TOKENS * BLOCK_TOKENS

    def fits(self, parts: Sequence[PromptPart], more: int = 0) -> bool:
        """Whether a prompt finds room beside what runs."""
        needed = more
        for part in parts:
            text = self._texts.get(part.key)
            held = text.tokens if text and text.holders else 0
            needed += max(0, part.tokens - held)
        return needed <= self.room

    def hold(self, parts: Sequence[PromptPart]) -> None:
        """Keep a prompt's texts for a request that starts."""
        for part in parts:
            text = self._texts.get(part.key)
            if text is None:
                text = self._texts[part.key] = _Text(0)
            more = part.tokens - text.tokens
            if text.holders or part.known == part.tokens:
                more = max(0, more)
            # Else the end of the text is an answer that this prompt does not repeat.
            self._held += more if text.holders else text.tokens + more
            self._idle.pop(part.key, None)
            text.tokens += more
            text.holders += 1
            self._tokens += more
        self.make_room()

    def release(self, parts: Sequence[PromptPart], answer: int) -> None:
        """Let go of a request's texts; the answer is idle behind the last one."""
        self.answers -= answer
        for part in reversed(parts):
            text = self._texts[part.key]
            text.holders -= 1
            if text.holders:
                continue
            self._held -= text.tokens
            self._idle[part.key] = None
            if part is parts[-1]:
                more = max(0, part.tokens + answer - text.tokens)
                text.tokens += more
                self._tokens += more
        self.make_room()

    def put(self, parts: Sequence[PromptPart]) -> None:
        """Texts of a request that was answered before."""
        self.hold(parts)
        self.release(parts, 0)

    def make_room(self) -> None:
        """Drop idle texts until everything is within the capacity, or nothing is idle."""
        excess = math.ceil(self._tokens + self.answers - self.capacity)
        while excess > 0 and self._idle:
            key = next(iter(self._idle))
            text = self._texts[key]
            dropped = min(text.tokens, excess)
            text.tokens -= dropped
            self._tokens -= dropped
            excess -= dropped
            if not text.tokens:
                del self._texts[key], self._idle[key]
