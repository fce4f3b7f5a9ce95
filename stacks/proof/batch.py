"""One batch of a scheduler under load, on average: how long its steps are and how many requests get a token in each.

A scheduler (a replica, or each data-parallel rank of one) takes steps. A step gives every running request a token and
packs prompt tokens up to its budget, in order of arrival. So a step lasts T = d(b) + what its prompt tokens add, and
the balance of a long time gives T = d(b) / (1 - arrivals x work of a prompt), b = arrivals x gaps of an answer x T
(Little). A pipeline of s stages has s batches under way, each with its part of arrivals and slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from stacks.proof.demand import Load, Spread
from stacks.proof.roofline import Roofline
from stacks.proof.spreads import DecodeTimes
from stacks.proof.steps import StepTimes

# Tokens left for prompts in a step whose every slot decodes.
_LEAST_CHUNK = 16
# One request in thirty years: fewer are as calm, and too small for differences of numbers.
_LEAST_RATE = 1e-9
# Rounds in which the requests that usually run are found, for step times alone.
_USUAL_ROUNDS = 3
_CHORDS = 12
# Rounds in which the share of idle time settles.
_IDLE_ROUNDS = 3
# The last of them moves a step that has settled by less.
_SETTLED = 0.01
_HALVINGS = 20
# Of the time that has steps, prompts take less than all.
_MOST_SHARE = 0.999
_FULL_ROUNDS = 12


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """What one scheduler is and may do."""

    roofline: Roofline
    slots: int
    """Requests that it runs at once (max-num-seqs)."""
    batched_tokens: int
    """Tokens of one step (max-num-batched-tokens)."""
    prompt_step_tokens: float = math.inf
    """Of these, those of one prompt (long-prefill-token-threshold)."""
    stages: int = 1
    """Pipeline stages: so many batches are under way at once, each with its part of the requests."""
    generates: bool = True
    context: float = math.inf
    """Longest prompt, and longest answer, that it takes."""
    tokens_per_step: float = 1.0
    """Tokens of an answer that a step gives on average."""
    tokens_variance: float = 0.0
    """Of these, from step to step."""
    width: int = 1
    """What a running request takes of `batched_tokens`."""
    asynchronous: bool = False
    """Whether a step is scheduled while the one before runs, so that a prompt waits for one step more."""
    servers: float = 0.0
    """API servers in front of it; a part of one that it shares with other schedulers. 0 has none that counts."""


class Prompt(NamedTuple):
    """Prompts of a part of the distribution, and what they take of a scheduler beside the decodes in the same steps.

    A proof makes thousands, which a NamedTuple is made for.
    """

    share: float
    tokens: float
    """That are computed."""
    cached: float
    full: int
    """Steps that it fills."""
    full_s: float
    """What those add, in sum."""
    rest: float
    """Tokens of its last step."""
    rest_s: float
    """What they add."""

    @property
    def work_s(self) -> float:
        return self.full_s + self.rest_s


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Means of one batch; infinite where it does not keep up."""

    step_s: float
    per_s: float
    """Steps."""
    decodes: float
    """Requests that a step gives a token."""
    idle: float
    """Share of time without a step."""


OVERLOADED = Balance(step_s=math.inf, per_s=0.0, decodes=math.inf, idle=0.0)


@lru_cache(maxsize=256)
def step_times(roofline: Roofline, context: float, usual: float) -> StepTimes:
    """Shared by all sizes of a step."""
    return StepTimes(roofline, context, usual)


@lru_cache(maxsize=256)
def lengths_of(spread: Spread, most: float) -> tuple[tuple[float, float], ...]:
    """(share, tokens) of a distribution's parts, none longer than `most`."""
    return tuple((part.share, min(part.tokens, most)) for part in spread.strata)


def prompt_of(times: StepTimes, share: float, tokens: float, hit: float, size: float) -> Prompt:
    """A prompt of so many tokens in steps that have room for `size` of them; hit: share that is in a cache."""
    fresh = max(1.0, tokens * (1 - hit))
    cached = tokens - fresh
    full = math.floor(fresh / size)
    rest = fresh - full * size
    full_s = sum([chunk.steps * chunk.extra_s for chunk in times.full_chunks(fresh, cached, size)]) if full else 0.0
    return Prompt(share, fresh, cached, full, full_s, rest, times.chunk_s(rest, cached + full * size))


@dataclass(frozen=True)
class Batch:
    """`load` on `schedulers` engines of that kind, each with an equal part of it: means of one batch."""

    engine: Scheduler
    load: Load
    schedulers: int

    @property
    def arrivals_per_s(self) -> float:
        """Requests that one scheduler gets a second."""
        return self.load.requests_per_s / self.schedulers

    @cached_property
    def _batches(self) -> int:
        return self.schedulers * self.engine.stages

    @cached_property
    def _rate(self) -> float:
        """Requests that one batch gets a second."""
        return max(_LEAST_RATE, self.load.requests_per_s / self._batches)

    @cached_property
    def _slots(self) -> float:
        return self.engine.slots / self.engine.stages

    @cached_property
    def _answers(self) -> tuple[tuple[float, float], ...]:
        """(share, steps) of answers; the first token comes with the prompt."""
        if not self.engine.generates:
            return ()
        return tuple(
            (share, max(0.0, tokens - 1) / self.engine.tokens_per_step)
            for share, tokens in lengths_of(self.load.answer_tokens, self.engine.context)
        )

    @cached_property
    def _lengths(self) -> tuple[tuple[float, float], ...]:
        """(share, tokens) of prompts, cached ones included."""
        return lengths_of(self.load.prompt_tokens, self.engine.context)

    @cached_property
    def gaps(self) -> float:
        """Mean steps of an answer: gaps between what they give."""
        gaps = sum(share * gaps for share, gaps in self._answers)
        return gaps if gaps > 1e-6 else 0.0

    @cached_property
    def times(self) -> StepTimes:
        """Step times. A request is seen running the longer the longer it runs: E[n^2] / 2 E[n] of its answer are there.

        Prompts and answers are independent, so that running requests have the same prompts as arriving ones.
        """
        so_far = sum(share * gaps**2 for share, gaps in self._answers) / self.gaps / 2 if self.gaps else 0.0
        so_far *= self.engine.tokens_per_step
        context = so_far + sum([share * tokens for share, tokens in self._lengths])
        usual = 1.0
        for _ in range(_USUAL_ROUNDS):
            usual = self._rate * self.gaps * self.engine.roofline.step_s(decodes=usual, context=context)
            usual = min(max(1.0, usual), self._slots)
        return step_times(self.engine.roofline, context, usual)

    def decode_s(self, running: float) -> float:
        """A decode step with that many running requests, each of the mean length so far."""
        return self.times.decode_s(running / self.engine.stages)

    def _prompts(self, times: StepTimes, size: float, hit: float) -> tuple[Prompt, ...]:
        """By steps that have room for `size` prompt tokens."""
        return tuple([prompt_of(times, share, tokens, hit, size) for share, tokens in self._lengths])

    def _room(self, decodes: float) -> float:
        """Tokens of a prompt in a step.

        A cap on one prompt leaves room for others in the same step, which is not counted: prompts are then as fast as
        with steps of that size. vLLM caps no request that is alone (0.32, v1/core/sched/scheduler.py).
        """
        left = self.engine.batched_tokens - decodes * self.engine.width
        return max(float(_LEAST_CHUNK), min(left, self.engine.prompt_step_tokens))

    @cached_property
    def prompts(self) -> tuple[Prompt, ...]:
        """In the steps of the steady state."""
        decodes = min(self._slots, self._rate * self.gaps * self.times.decode_s(self.times.usual))
        return self._prompts(self.times, self._room(decodes), self.load.prefix_hit)

    @cached_property
    def fresh(self) -> float:
        """Mean prompt tokens that are computed."""
        return sum(prompt.share * prompt.tokens for prompt in self.prompts)

    @cached_property
    def work_s(self) -> float:
        """What a mean prompt adds to steps, alone in them."""
        return sum(prompt.share * prompt.work_s for prompt in self.prompts)

    @property
    def prompt_token_s(self) -> float:
        """Seconds that one more prompt token adds, on average over all lengths."""
        return self.work_s / self.fresh

    @cached_property
    def prompt_share(self) -> float:
        """Share of a scheduler's time that prompts take; 1 and more is too much."""
        return self._rate * self.work_s

    def _balance_at(self, decodes: float) -> Balance:
        """Were so many requests to get a token in each step; `decodes` of the outcome follow from that."""
        rate = self._rate
        base = self.times.decode_s(decodes)
        step_s, idle = self._step_and_idle(base)
        return Balance(
            step_s=step_s, per_s=(1 - idle) / step_s, decodes=rate * self.gaps * step_s / (1 - idle), idle=idle
        )

    def _step_and_idle(self, base: float) -> tuple[float, float]:
        """Seconds of a step whose decodes take `base`, and the share of time without a step; each follows from the
        other.

        Prompts take their share of the time that has steps: step = base / (1 - share / (1 - idle)). That falls as the
        step grows, so there is one answer, and it is no less than the step of an engine that is never idle.
        """

        def follows(step_s: float) -> tuple[float, float]:
            idle = self._idle_at(step_s)
            return base / (1 - min(_MOST_SHARE, self.prompt_share / (1 - idle))), idle

        least = base / (1 - self.prompt_share)
        before = step_s = least
        idle = 0.0
        for _ in range(_IDLE_ROUNDS):
            before, (step_s, idle) = step_s, follows(step_s)
        if abs(step_s - before) < _SETTLED * before:
            return step_s, idle
        # Prompts that take many times a decode step, of an engine that is mostly idle: the rounds leap to and fro.
        low = high = least
        while follows(high)[0] > high:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if follows(middle)[0] > middle else (low, middle)
        return high, self._idle_at(high)

    def _idle_at(self, step_s: float) -> float:
        """None came during the last step, and nothing runs (M/G/infinity): then the next one waits for an arrival."""
        rate = self._rate
        alone = math.exp(-min(700.0, rate * step_s))
        return alone / (alone + rate * step_s) * math.exp(-min(700.0, rate * self.gaps * step_s))

    @cached_property
    def balance(self) -> Balance:
        """Means of a batch in the steady state."""
        if not self.prompt_share < 1:
            return OVERLOADED
        if self._balance_at(self._slots).decodes >= self._slots:
            return OVERLOADED
        # A step's time is nearly straight in its decodes, so that few chords meet; the slots take no part in it.
        before = self.times.usual
        excess = self._balance_at(before).decodes - before
        decodes = before + excess
        for _ in range(_CHORDS):
            state = self._balance_at(decodes)
            left = state.decodes - decodes
            if abs(left) < 1e-6 * max(1e-3, decodes) or left == excess:
                break
            before, decodes, excess = decodes, max(0.0, decodes - left * (decodes - before) / (left - excess)), left
        return state

    @cached_property
    def _base_s(self) -> float:
        """A step of the mean requests, without prompts."""
        return self.times.decode_s(self.balance.decodes)

    @cached_property
    def _full(self) -> tuple[float, float]:
        """Seconds and prompt tokens of a step that is full, at this load; infinite where its decodes leave no room."""
        decodes, linear = 0.0, self.times.linear_s
        alone = sum(
            p.share * (p.full * linear((p.tokens - p.rest) / max(1, p.full)) + linear(p.rest)) for p in self.prompts
        )
        attention = (self.work_s - alone) / self.fresh
        for _ in range(_FULL_ROUNDS):
            room = self._room(decodes)
            step_s = self.times.decode_s(decodes) + self.times.linear_s(room) + max(0.0, attention) * room
            wanted = self._rate * self.gaps * step_s
            if wanted * self.engine.width >= self.engine.batched_tokens:
                return math.inf, 1.0
            if abs(wanted - decodes) < 1e-3 * max(1.0, wanted):
                break
            decodes = wanted
        return step_s, room

    @property
    def full_token_s(self) -> float:
        """Seconds per prompt token while steps are full."""
        step_s, tokens = self._full
        return step_s / tokens

    @property
    def prompt_utilisation(self) -> float:
        """Prompt tokens that come, over those that full steps would take."""
        return self._rate * self.fresh * self.full_token_s

    @cached_property
    def _spread(self) -> float:
        """Variance of the running requests: more than Poisson's, as each slows the others (M/G/1-PS, by its rates)."""
        decodes = self.balance.decodes
        base, more = self.times.decode_s(decodes), self.times.decode_s(decodes * 1.1 + 1)
        slope = (more - base) / (decodes * 0.1 + 1)
        return decodes * (1 - self.balance.idle) / max(0.05, 1 - slope * decodes / base)

    @cached_property
    def _seen(self) -> float:
        """Running requests beside and with it that a token meets."""
        decodes = self.balance.decodes * (1 - self.balance.idle)
        return min(self._slots, decodes + (self._spread / decodes if decodes else 1.0))

    @cached_property
    def _decode(self) -> DecodeTimes:
        """Decode steps, as tokens meet them."""
        seen, context = self._seen, self.times.context
        mean = self.times.decode_s(seen)
        more_s = (self.times.decode_s(seen * 1.1 + 1) - mean) / (seen * 0.1 + 1)
        # Requests take what their contexts are; long ones make the sum vary more than their number does.
        bare = self.engine.roofline.step_s(decodes=seen, context=0.0)
        of_context = min(1.0, max(0.0, (mean - bare) / seen / more_s)) if more_s > 0 else 0.0
        second = sum([share * tokens**2 for share, tokens in self._lengths])
        first = sum([share * tokens for share, tokens in self._lengths])
        variation = max(0.0, second - first**2) / context**2
        return DecodeTimes(
            least_s=max(0.0, mean - more_s * seen),
            mean_s=mean,
            variance=more_s**2 * self._spread * (1 + of_context**2 * variation),
        )
