"""Requests and services that several tests of the twin use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stacks.proof.demand import Spread
from stacks.whatif.lengths import drawn, seeded
from stacks.whatif.picker import PickingPlan
from stacks.whatif.rank import RankPlan
from stacks.whatif.simulation import ServedModel
from stacks.whatif.traffic import Arrival, PromptPart

ALIKE, ONE = Spread(100, 100.01), Spread(1, 1.0001)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Poisson arrivals of prompts that share nothing."""

    rate: float
    prompt: Spread = ALIKE
    answer: Spread = ONE
    seed: str = "1"
    shares: tuple[float, ...] = (1.0,)
    adapters: tuple[float, ...] = ()
    """Shares of the requests, by adapter."""

    def earlier(self) -> Sequence[Arrival]:
        return []

    def arrivals(self, until_s: float) -> Iterator[Arrival]:
        times, lengths = seeded(self.seed, "times"), seeded(self.seed, "lengths")
        tiers, adapters = seeded(self.seed, "tiers"), seeded(self.seed, "adapters")
        now = times.expovariate(self.rate)
        while now < until_s:
            tier = tiers.choices(range(len(self.shares)), self.shares)[0]
            prompt = drawn(self.prompt, lengths, 10**6)
            adapter = adapters.choices(range(len(self.adapters)), self.adapters)[0] if self.adapters else None
            yield Arrival(now, tier, prompt, drawn(self.answer, lengths, 10**6), (), adapter)
            now += times.expovariate(self.rate)


@dataclass(frozen=True, kw_only=True)
class SharedPrompts:
    """A benchmark's requests: groups that share a system prompt, and questions that come again."""

    rate: float
    groups: int
    questions: int
    """Of each group."""
    system_tokens: int
    question_tokens: int
    answer: Spread
    seed: str = "1"

    def earlier(self) -> Sequence[Arrival]:
        return []

    def arrivals(self, until_s: float) -> Iterator[Arrival]:
        times, choices = seeded(self.seed, "times"), seeded(self.seed, "choices")
        now = times.expovariate(self.rate)
        while now < until_s:
            group, question = choices.randrange(self.groups), choices.randrange(self.questions)
            system = PromptPart(-1 - group, self.system_tokens, self.system_tokens)
            own = PromptPart(group * self.questions + question, self.question_tokens, self.question_tokens)
            prompt = self.system_tokens + self.question_tokens
            yield Arrival(now, 0, prompt, drawn(self.answer, choices, 10**6), (system, own))
            now += times.expovariate(self.rate)


def served(
    *,
    step_s: float = 0.0,
    prompt_token_s: float = 0.0,
    slots: int = 1,
    batched: int = 10**6,
    replicas: int = 1,
    cache: int = 10**9,
    picking: PickingPlan | None = None,
) -> ServedModel:
    """Schedulers whose steps take a fixed time and a time for each prompt token."""

    def step(prefill: int, reach: float, decodes: int, context: float) -> float:
        return step_s + prompt_token_s * prefill

    rank = RankPlan(step_s=step, slots=slots, batched_tokens=batched, cache_tokens=cache)
    return ServedModel(rank=rank, replicas=replicas, picking=picking or PickingPlan())


@dataclass(frozen=True, kw_only=True)
class Talks:
    """The conversations of benchmarks/routing.py, whose answers come back in the next prompt."""

    conversations: int = 40
    turns: int = 8
    applications: int = 4
    system_tokens: int = 1000
    question_tokens: int = 250
    answer_tokens: int = 32
    pause_s: float = 1.0
    answer_s: float = 1.0
    """An answer takes about so long, before which no next question comes."""
    seed: str = "1"

    def earlier(self) -> Sequence[Arrival]:
        return []

    def arrivals(self, until_s: float) -> Iterator[Arrival]:
        pauses = seeded(self.seed, "pauses")
        arrivals = []
        for number in range(self.conversations):
            now = 0.0
            system = PromptPart(-1 - number % self.applications, self.system_tokens, self.system_tokens)
            for turn in range(self.turns):
                now += pauses.uniform(0, 2 * self.pause_s) + (self.answer_s if turn else 0.0)
                known = turn * (self.question_tokens + self.answer_tokens)
                own = PromptPart(number, known + self.question_tokens, known)
                arrivals.append(Arrival(now, 0, system.tokens + own.tokens, self.answer_tokens, (system, own)))
        yield from (arrival for arrival in sorted(arrivals, key=lambda arrival: arrival.at_s) if arrival.at_s < until_s)
