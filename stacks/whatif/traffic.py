"""Requests as a model gets them: random arrivals, log-normal lengths, conversations whose prompts share a beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Protocol

from stacks.proof.demand import Load, Spread
from stacks.whatif.lengths import drawn, length_at, seeded, turns_for

# Mean time between two prompts of one conversation: reading an answer, writing a question; estimated.
PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of a prompt that other prompts may begin with too, as long as all parts before it are the same."""

    key: int
    """The text it is part of: a conversation, or a system prompt."""
    tokens: int
    """Tokens of this prompt in that text."""
    known: int
    """Of those, tokens that the prompt before had as well."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request, when it comes to the gateway."""

    at_s: float
    tier: int
    """Place of its tier in the order of the simulation's tiers."""
    prompt: int
    """Tokens."""
    answer: int
    """Tokens, reasoning included."""
    parts: tuple[PromptPart, ...]
    """Its prompt, outermost first; what follows them is in no other prompt."""
    adapter: int | None = None
    """Which of the model's adapters it is for; None for the model itself."""


@dataclass(frozen=True, kw_only=True)
class Surge:
    """A time in which the load is another one."""

    begins_s: float
    lasts_s: float
    times: float

    @property
    def ends_s(self) -> float:
        return self.begins_s + self.lasts_s


class Source(Protocol):
    """Where requests come from."""

    def earlier(self) -> Sequence[Arrival]:
        """Prompts that were answered before the beginning, for caches that are not empty."""

    def arrivals(self, until_s: float) -> Iterator[Arrival]:
        """Every request up to then, in order of time."""


class _Conversation:
    """Prompts in ascending order, each the beginning of the next.

    Their shares of the distribution are the ascending order statistics of as many random numbers, drawn one by one.
    """

    def __init__(self, key: int, prompts: int, adapter: int | None) -> None:
        self.key, self.left, self.adapter = key, prompts, adapter
        self._share = 0.0
        self.last = 0

    def skip(self, prompts: int, lengths: Spread, random: Random, most: int) -> None:
        """Let so many prompts be asked already."""
        self._share = random.betavariate(prompts, self.left - prompts + 1)
        self.left -= prompts
        self.last = length_at(lengths, self._share, most)

    def ask(self, lengths: Spread, random: Random, most: int) -> PromptPart:
        """The next prompt, which has all of the last one."""
        self._share = 1 - (1 - self._share) * random.random() ** (1 / self.left)
        self.left -= 1
        known, self.last = self.last, length_at(lengths, self._share, most)
        return PromptPart(self.key, self.last, known)


class Traffic:
    """Arrivals of one model, from a seed. The same seed gives the same requests.

    Arrivals are a Poisson process. Each is the next prompt of a conversation that is picked at random of those under
    way; there are as many as give a mean pause of PAUSE_S between two prompts (Little), so a surge brings new ones.
    These are anywhere in their course, as those under way are: else the prompts of a short surge would be the shortest
    of each. No cache has what they asked before.
    """

    def __init__(
        self,
        load: Load,
        *,
        context: int,
        seed: str,
        shares: Sequence[float] = (1.0,),
        surge: Surge | None = None,
        adapters: Sequence[float] = (),
    ) -> None:
        """shares: of the requests, by tier. context: tokens that prompt and answer may have together.

        adapters: shares of the conversations, by adapter; without any, all are with the model itself.
        """
        self._load, self._context, self._surge = load, context, surge
        self._shares = list(shares)
        self._times, self._lengths = seeded(seed, "times"), seeded(seed, "lengths")
        self._choices, self._adapted = seeded(seed, "choices"), seeded(seed, "adapters")
        self._adapters = list(accumulate(adapters))
        self._longest = max(1, context - 1)
        self._turns = turns_for(load.prompt_tokens, load.prefix_hit, self._longest)
        self._made = 0
        self._under_way = [self._conversation(begun=True) for _ in range(self._conversations(1.0))]

    def _conversations(self, times: float) -> int:
        return max(1, round(self._load.requests_per_s * times * PAUSE_S))

    def _conversation(self, *, begun: bool = False) -> _Conversation:
        count = self._turns.draw(self._lengths)
        self._made += 1
        conversation = _Conversation(self._made, count, self._adapter())
        if begun and (asked := self._lengths.randrange(count)):
            conversation.skip(asked, self._load.prompt_tokens, self._lengths, self._longest)
        return conversation

    def _adapter(self) -> int | None:
        if not self._adapters:
            return None
        return self._adapted.choices(range(len(self._adapters)), cum_weights=self._adapters)[0]

    def earlier(self) -> list[Arrival]:
        """The last prompts of conversations that are under way at the beginning: what caches hold by then."""
        begun = [conversation for conversation in self._under_way if conversation.last]
        return [Arrival(0.0, 0, talk.last, 1, (PromptPart(talk.key, talk.last, 0),)) for talk in begun]

    def arrivals(self, until_s: float) -> Iterator[Arrival]:
        """Every request up to then, in order."""
        now, surge = 0.0, self._surge
        while True:
            rate, border = self._load.requests_per_s, until_s
            if surge is not None:
                if now < surge.begins_s:
                    border = min(until_s, surge.begins_s)
                elif now < surge.ends_s:
                    rate, border = rate * surge.times, min(until_s, surge.ends_s)
            after = now + self._times.expovariate(rate)
            # Memoryless: at a border of the rate, the wait begins again.
            if after >= border:
                if border >= until_s:
                    return
                now = border
                self._resize(surge.times if surge is not None and surge.begins_s <= now < surge.ends_s else 1.0)
                continue
            now = after
            yield self._next(now)

    def _resize(self, times: float) -> None:
        """As many conversations as the rate asks for."""
        wanted = self._conversations(times)
        while len(self._under_way) > wanted:
            self._under_way.pop()
        brought = [self._conversation(begun=True) for _ in range(wanted - len(self._under_way))]
        for conversation in brought:
            conversation.last = 0
        self._under_way += brought

    def _next(self, now: float) -> Arrival:
        place = self._choices.randrange(len(self._under_way))
        conversation = self._under_way[place]
        part = conversation.ask(self._load.prompt_tokens, self._lengths, self._longest)
        if not conversation.left:
            self._under_way[place] = self._conversation()
        answer = drawn(self._load.answer_tokens, self._lengths, max(1, self._context - part.tokens))
        tier = self._choices.choices(range(len(self._shares)), self._shares)[0] if len(self._shares) > 1 else 0
        return Arrival(now, tier, part.tokens, answer, (part,), conversation.adapter)
