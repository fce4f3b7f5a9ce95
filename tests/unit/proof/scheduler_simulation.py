"""A scheduler like vLLM's in discrete events, which tests hold the analytic model against.

Each step gives running requests a token each, then prompt tokens in order of arrival up to the budget: several short
prompts in one step, a long one over several. A prompt that is begun keeps its slot. The time of a step is the
roofline's. No cache runs out, nothing is preempted. With drafts each token of a step is accepted by chance until the
first that is not.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from stacks.proof.demand import Load, Spread
from stacks.proof.roofline import Roofline
from stacks.proof.speculation import Speculation


@dataclass
class _Request:
    arrived_s: float
    prompt: float
    cached: float
    answer: int
    left: float
    first_s: float = 0.0
    steps: int = 0
    """That give its answer, behind the first token."""


@dataclass(frozen=True)
class Sample:
    """Weighted values, by size."""

    values: Sequence[float]
    weights: Sequence[float]

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Sample:
        ordered = sorted(pairs)
        return cls([value for value, _ in ordered], list(accumulate(weight for _, weight in ordered)))

    def share_beyond(self, value: float) -> float:
        """Weight of larger values."""
        index = bisect_right(self.values, value)
        return 1 - (self.weights[index - 1] / self.weights[-1] if index else 0.0)

    @property
    def mean(self) -> float:
        shares = [self.weights[0], *(after - before for before, after in pairwise(self.weights))]
        return sum(value * share for value, share in zip(self.values, shares, strict=True)) / self.weights[-1]

    def quantile(self, share: float) -> float:
        return self.values[min(len(self.values) - 1, bisect_left(self.weights, share * self.weights[-1]))]


@dataclass
class _Engine:
    roofline: Roofline
    slots: int
    batched_tokens: int
    speculation: Speculation | None = None
    prompt_step_tokens: float = math.inf
    asynchronous: bool = False
    """Whether a step is scheduled when the one before begins (vLLM 0.32 v1/engine/core.py, step_with_batch_queue)."""
    began_s: float = 0.0
    """Of the last step."""
    chances: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311
    clock_s: float = 0.0
    steps: int = 0
    decodes: int = 0
    context: float = 0.0
    waiting: deque[_Request] = field(default_factory=deque)
    begun: deque[_Request] = field(default_factory=deque)
    ends: dict[int, list[_Request]] = field(default_factory=lambda: defaultdict(list))
    done: list[_Request] = field(default_factory=list)
    ttft: list[tuple[float, float]] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)
    tpot: list[tuple[float, float]] = field(default_factory=list)

    @property
    def held(self) -> int:
        return self.decodes + len(self.begun) + len(self.waiting)

    def advance(self, until_s: float) -> None:
        """Steps that begin before that time."""
        while self.clock_s < until_s and self.held:
            self._step()
        self.clock_s = max(self.clock_s, until_s) if not self.held else self.clock_s

    def _step(self) -> None:
        width, per_step = (self.speculation.width, self.speculation.per_step) if self.speculation else (1, 1.0)
        left, prefill, reached = float(self.batched_tokens - self.decodes * width), 0.0, 0.0
        ready: list[_Request] = []
        ahead = self.asynchronous and (self.decodes or self.begun)
        scheduled_s, self.began_s = self.began_s if ahead else self.clock_s, self.clock_s
        capped: list[_Request] = []
        while left >= 1 and (
            self.begun
            or (
                self.waiting
                and self.waiting[0].arrived_s <= scheduled_s
                and self.decodes + len(self.begun) + len(capped) + len(ready) < self.slots
            )
        ):
            request = self.begun.popleft() if self.begun else self.waiting.popleft()
            chunk = min(left, request.left, self.prompt_step_tokens if self.held else math.inf)
            reached += chunk * (request.prompt - request.left + chunk / 2)
            request.left -= chunk
            left -= chunk
            prefill += chunk
            if request.left > 0:
                capped.append(request)
            else:
                ready.append(request)
        self.begun.extendleft(reversed(capped))
        time_s = self.roofline.step_s(
            prefill=prefill,
            reach=reached / prefill if prefill else 0.0,
            decodes=float(self.decodes),
            context=self.context / self.decodes if self.decodes else 0.0,
        )
        self.clock_s += time_s
        self.steps += 1
        if self.decodes:
            self.gaps.append((time_s, self.decodes))
            self.context += self.decodes * per_step
        for request in self.ends.pop(self.steps, ()):
            self.decodes -= 1
            self.context -= request.prompt + 1 + request.steps * per_step
            self.tpot.append(((self.clock_s - request.first_s) / (request.answer - 1), 1.0))
        for request in ready:
            request.first_s = self.clock_s
            self.ttft.append((self.clock_s - request.arrived_s, 1.0))
            if request.answer > 1:
                self.decodes += 1
                self.context += request.prompt + 1
                request.steps = self._steps_of(request.answer - 1)
                self.ends[self.steps + request.steps].append(request)

    def _steps_of(self, tokens: int) -> int:
        """Steps that give so many tokens: each gives one, and each drafted one that is accepted after those before."""
        if self.speculation is None:
            return tokens
        steps = 0
        while tokens > 0:
            steps, tokens = steps + 1, tokens - 1
            drafted = self.speculation.tokens
            while drafted and self.chances.random() < self.speculation.acceptance:
                drafted, tokens = drafted - 1, tokens - 1
        return steps


def averaged(samples: Sequence[Sample]) -> Sample:
    """All of them together, each with the same weight."""
    pairs = []
    for sample in samples:
        shares = [sample.weights[0], *(after - before for before, after in pairwise(sample.weights))]
        pairs += [(value, share / sample.weights[-1]) for value, share in zip(sample.values, shares, strict=True)]
    return Sample.of(pairs)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What users of the simulated engines measure, in seconds."""

    ttft: Sample
    itl: Sample
    tpot: Sample
    left: int
    """Requests that waited for their first step when the last one arrived."""


def _draw(spread: Spread, generator: random.Random, most: float) -> float:
    return min(most, spread.quantile(min(1 - 1e-9, max(1e-9, generator.random()))))


def simulate(
    roofline: Roofline,
    load: Load,
    *,
    slots: int,
    batched_tokens: int,
    requests: int,
    most_tokens: float = 200_000,
    engines: int = 1,
    seed: int = 1,
    warm: float = 0.1,
    speculation: Speculation | None = None,
    prompt_step_tokens: float = math.inf,
    asynchronous: bool = False,
) -> Simulated:
    """Random arrivals at `load`, each to the engine with the fewest requests."""
    generator = random.Random(seed)  # noqa: S311
    fleet = [
        _Engine(roofline, slots, batched_tokens, speculation, prompt_step_tokens, asynchronous) for _ in range(engines)
    ]
    now_s = 0.0
    for count in range(requests):
        now_s += generator.expovariate(load.requests_per_s)
        for engine in fleet:
            engine.advance(now_s)
        if count == int(requests * warm):
            for engine in fleet:
                engine.ttft.clear()
                engine.gaps.clear()
                engine.tpot.clear()
        prompt = max(1.0, round(_draw(load.prompt_tokens, generator, most_tokens)))
        answer = max(1, round(_draw(load.answer_tokens, generator, most_tokens)))
        fresh = max(1.0, round(prompt * (1 - load.prefix_hit)))
        request = _Request(now_s, prompt, prompt - fresh, answer, fresh)
        min(fleet, key=lambda engine: engine.held).waiting.append(request)
    return Simulated(
        ttft=Sample.of([pair for engine in fleet for pair in engine.ttft] or [(0.0, 1.0)]),
        itl=Sample.of([pair for engine in fleet for pair in engine.gaps] or [(0.0, 1.0)]),
        tpot=Sample.of([pair for engine in fleet for pair in engine.tpot] or [(0.0, 1.0)]),
        left=sum(len(engine.waiting) for engine in fleet),
    )
