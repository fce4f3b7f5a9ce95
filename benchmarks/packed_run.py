"""The steps that a finite number of requests takes on one scheduler; what published runs report is their sum.

A run that starts with all its requests at once is not a steady state: all of them begin with prompts, and the last
wave runs on a half empty engine. Steps are packed as vLLM packs them: a token for each answering request, prompts in
order of arrival with what is left of the budget. Stretches in which nothing changes but the context are one entry.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from stacks.proof.front_end import CHUNK_STREAMS, FrontEnd
from stacks.proof.roofline import Roofline

# Fraction by which each next request's place in a distribution is moved (golden ratio): even at any number of them.
_STRIDE = (math.sqrt(5) - 1) / 2
_LONGEST_SHARE = 0.999
# Sums of times that are equal differ by less.
_SAME_S = 1e-9
_MOST_WRITING = 0.5


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Steps that are alike."""

    steps: int
    prefill: float
    reach: float
    decodes: float
    context: float

    def seconds(self, roofline: Roofline) -> float:
        """Time of all its steps."""
        return self.steps * roofline.step_s(
            prefill=self.prefill, reach=self.reach, decodes=self.decodes, context=self.context
        )


class Door:
    """An API server in front of one scheduler: its requests all come at once, and it passes them one after the other.

    What steps give holds up the requests that are not passed yet, for at most half of the server's time. While it is
    behind, the tokens of a stream come in few pieces, but not where a step has more streams than a chunk.
    """

    def __init__(self, front_end: FrontEnd, lengths: Sequence[tuple[int, int]], slots: int) -> None:
        streams = min(slots, len(lengths))
        self._front_end = front_end
        self._passed_s = list(accumulate(front_end.streamed_s(prompt, 1, 1) for prompt, _ in lengths))
        self._least_s = sum(front_end.least_s(prompt, answer, streams) for prompt, answer in lengths)
        self._written_s = self._last_s = 0.0
        self.now_s = 0.0

    @property
    def passed(self) -> int:
        """Requests that the scheduler has by now."""
        return bisect_right(self._passed_s, self.now_s - self._written_s + _SAME_S)

    def wait(self) -> None:
        """Until the next request is passed."""
        self.now_s = max(self.now_s, self._passed_s[self.passed] + self._written_s)

    def step(self, seconds: float, steps: int, tokens: float) -> None:
        """Alike steps, which take so long together; tokens: that each of them gives, but for first ones."""
        self.now_s += seconds
        self._last_s = self._front_end.outputs_s(tokens, tokens)
        pieces = tokens if tokens > CHUNK_STREAMS else 0
        self._written_s += min(steps * self._front_end.outputs_s(tokens, pieces), _MOST_WRITING * seconds)

    @property
    def end_s(self) -> float:
        """When the last answer is written."""
        return max(self.now_s + self._last_s, self._least_s)


def alike(prompt: float, answer: float, count: int) -> list[tuple[int, int]]:
    """Prompt and answer tokens of requests that are all alike."""
    return [(max(1, round(prompt)), max(1, round(answer)))] * count


def mixed(prompt: float, answer: float, count: int) -> list[tuple[int, int]]:
    """Lengths of which a source gives the mean alone: exponential, the distribution that assumes nothing more."""
    lengths = []
    for number in range(count):
        places = [(start + number * _STRIDE * turns) % 1 * _LONGEST_SHARE for start, turns in ((0.5, 1), (0.25, 7))]
        sizes = [-math.log(1 - place) for place in places]
        lengths.append((max(1, round(prompt * sizes[0])), max(1, round(answer * sizes[1]))))
    return lengths


def stretches(
    lengths: Sequence[tuple[int, int]], *, slots: int, batched_tokens: int, door: Door | None = None
) -> Iterator[Stretch]:
    """Every step from the start until the last request has its answer.

    door: passes the requests, and gets after each stretch what that took. Without one, all are there at once.
    """
    place, begun, step = 0, 0, 0  # `begun`: tokens of the next request's prompt that are worked off already.
    ends: list[tuple[int, int]] = []  # Step at which a request ends, and its tokens then.
    context = 0.0  # Tokens of all answering requests together.
    while place < len(lengths) or ends:
        if door and not ends and place < len(lengths) and door.passed <= place:
            door.wait()
        there = door.passed if door else len(lengths)
        running, chunk, reach = len(ends), 0, 0.0
        budget, free = batched_tokens - running, max(1, slots) - running
        first: list[tuple[int, int]] = []
        while budget > 0 and free > 0 and place < there:
            prompt, answer = lengths[place]
            part = min(budget, prompt - begun)
            reach += part * (begun + part / 2)
            chunk, budget, begun = chunk + part, budget - part, begun + part
            if begun < prompt:
                break
            first.append((prompt, answer))
            place, free, begun = place + 1, free - 1, 0
        # The next one that is passed finds a slot.
        awaited = free > 0 and there < len(lengths)
        steps = 1 if chunk or awaited else max(1, ends[0][0] - step)
        mean = context / running + (steps - 1) / 2 if running else 0.0
        yield Stretch(steps=steps, prefill=chunk, reach=reach / chunk if chunk else 0.0, decodes=running, context=mean)
        step += steps
        context += running * steps
        while ends and ends[0][0] <= step:
            context -= heapq.heappop(ends)[1]
        for prompt, answer in first:
            # The last chunk gave the first token.
            if answer > 1:
                heapq.heappush(ends, (step + answer - 1, prompt + answer))
                context += prompt + 1


def joined(steps: Iterable[Stretch]) -> list[Stretch]:
    """Steps of like sizes as one, for who asks often: a step's time is nearly linear in what it carries."""
    sums: dict[tuple[int, int], list[float]] = {}
    for step in steps:
        key = (_size(step.prefill, 1), _size(step.decodes, 2))
        total = sums.setdefault(key, [0.0] * 5)
        for place, amount in enumerate(
            (1, step.prefill, step.prefill * step.reach, step.decodes, step.decodes * step.context)
        ):
            total[place] += step.steps * amount
    return [
        Stretch(
            steps=round(count),
            prefill=prefill / count,
            reach=reached / prefill if prefill else 0.0,
            decodes=decodes / count,
            context=context / decodes if decodes else 0.0,
        )
        for count, prefill, reached, decodes, context in sums.values()
    ]


def _size(number: float, parts: int) -> int:
    """Powers of two, each in so many parts."""
    return round(parts * math.log2(number)) if number else -1


def run_s(
    roofline: Roofline,
    lengths: Sequence[tuple[int, int]],
    *,
    slots: int,
    batched_tokens: int,
    front_end: FrontEnd | None = None,
) -> float:
    """Seconds from the start until the last request has its answer; front_end: where the requests come by HTTP."""
    door = Door(front_end, lengths, slots) if front_end else None
    total = 0.0
    for stretch in stretches(lengths, slots=slots, batched_tokens=batched_tokens, door=door):
        seconds = stretch.seconds(roofline)
        total += seconds
        if door:
            door.step(seconds, stretch.steps, stretch.decodes)
    return door.end_s if door else total
