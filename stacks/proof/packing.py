"""What prompts do to steps and to each other: how they are packed, and what a new request or a first token meets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from stacks.proof.batch import Batch
from stacks.proof.queueing import erlang_c
from stacks.proof.spreads import Mixture, Points, compound, condensed

# Shares of a distribution that are drawn as one point each, finer at the end.
_PARTS = (0.3, 0.55, 0.75, 0.88, 0.95, 0.985, 1.0)
_FEW = (0.5, 0.8, 0.95, 1.0)
_ANSWERS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
# Points of a step that is under way.
_HALVES = (1 / 4, 3 / 4)
_THIRDS = (1 / 6, 1 / 2, 5 / 6)


def _sum_of(first: Points, second: Points) -> list[tuple[float, float]]:
    """(probability, sum) of two independent times that some meet; without those that meet neither."""
    none_first, none_second = (1 - sum(share for share, _ in points) for points in (first, second))
    sums = [(share * none_second, size) for share, size in first]
    sums += [(share * none_first, size) for share, size in second]
    sums += [(share * weight, size + more) for share, size in first for weight, more in second]
    return condensed(sums, _PARTS) if sums else []


@dataclass(frozen=True)
class Packing(Batch):
    """A batch, and the prompts in its steps. Only for a load that it keeps up with."""

    @cached_property
    def _filled(self) -> Points:
        """(share of steps, seconds that its chunk adds) of steps that one prompt fills."""
        size = self._room(self.balance.decodes)
        rate = self._rate / self.balance.per_s
        return [
            (rate * prompt.share * chunk.steps, chunk.extra_s)
            for prompt in self.prompts
            if prompt.full
            for chunk in self.times.full_chunks(prompt.tokens, prompt.cached, size)
        ]

    @cached_property
    def _packed_parts(self) -> Points:
        """(share of steps, seconds that prompts add) of the others: prompts in them end."""
        size, rate = self._room(self.balance.decodes), self._rate
        free = max(0.001, 1 - sum(share for share, _ in self._filled))
        jumps = [(prompt.share, prompt.rest_s) for prompt in self.prompts]
        most = self.times.linear_s(size) + size * self.times.attention_s(self.fresh / 2)
        most = max(most, max(extra for _, extra in jumps))
        count = rate / self.balance.per_s
        # Those that came while a long prompt was worked off come together in as few steps as hold them.
        blocking = self._blocking
        blocked = min(0.9, sum(often * size_s for often, size_s in blocking) / (1 - self._behind))
        mean = sum(share * extra for share, extra in jumps)
        together: list[tuple[float, float]] = []
        # Where every prompt ends with a full step, none adds a rest.
        if blocking and mean:
            length = sum(often * size_s**2 for often, size_s in blocking) / sum(often * s for often, s in blocking)
            crowd_s = min(most, max(mean, rate * length * mean))
            together.append((count * blocked * mean / crowd_s, crowd_s))
        # More come in a longer step, which makes the next one longer.
        crowding = 1 + rate**2 * sum(share * extra**2 for share, extra in jumps) / (1 - self.prompt_share**2)
        left = max(0.001, free - sum(share for share, _ in together))
        parts = compound(count * (1 - blocked) / left, crowding, jumps, most)
        return [*together, *((share * left, extra) for share, extra in parts)]

    @cached_property
    def _blocking(self) -> Points:
        """(how often a second, seconds) of prompts that fill steps: others wait meanwhile."""
        base = self._base_s
        return [(self._rate * p.share, p.full * base + p.full_s) for p in self.prompts if p.full]

    @cached_property
    def _behind(self) -> float:
        """Share of time that the other prompts need."""
        return max(0.0, min(0.95, self.prompt_utilisation) - sum(often * size_s for often, size_s in self._blocking))

    @cached_property
    def _running_step_s(self) -> float:
        """A step on average while a request runs: nothing idles meanwhile, and its own prompt is done."""
        return self._base_s / (1 - self.prompt_share)

    @cached_property
    def _added(self) -> Mixture:
        """What prompts add to a step, over all steps."""
        return Mixture((*self._filled, *self._packed_parts))

    @cached_property
    def _chunk_s(self) -> float:
        """What the longest chunk adds to a step."""
        return max((extra for _, extra in self._added.parts), default=0.0)

    @cached_property
    def _extra_share(self) -> float:
        """Of a full step, the share that its prompt tokens take."""
        step_s = self._full[0]
        return 1 - self._base_s / step_s if math.isfinite(step_s) else 1.0

    @cached_property
    def _few_answers(self) -> Points:
        return condensed([part for part in self._answers if part[1] * self.engine.tokens_per_step >= 0.5], _ANSWERS)

    @cached_property
    def _ahead(self) -> Points:
        """(probability, seconds) of the steps that prompts which fill steps take before a new one has its turn.

        One under way is met at any point of it, and behind it others wait; when it is done, those are worked off while
        more come. Further long ones are the ladder of Pollaczek and Khinchine, for several batches with Erlang's C: the
        picker sees who waits, and not how long the one under way is.
        """
        behind, base = self._behind, self._base_s
        # Of its last step another prompt takes a part, and waits for the whole of it.
        met = [
            (self._rate * p.share * (p.full * base + p.full_s) / 3, third * (p.full * base + p.full_s) + p.rest_s)
            for p in self.prompts
            if p.full
            for third in _THIRDS
        ]
        if not met:
            return []
        alone = condensed(met, _PARTS)
        first = [(share, seconds * (1 + behind)) for share, seconds in alone]
        first += [(share * behind / (1 - behind), seconds * behind) for share, seconds in alone]
        long = min(0.98, sum(share for share, _ in first))
        scale = long / sum(share for share, _ in first)
        first = [(share * scale, seconds) for share, seconds in first]
        further = erlang_c(self._batches, long * self._batches) * long
        stretch = 1 / (self._batches * (1 - long))
        total = sum(share for share, _ in alone)
        return _sum_of(first, [(share / total * further, seconds * stretch) for share, seconds in alone])

    @cached_property
    def _few_ahead(self) -> Points:
        return condensed(self._ahead, _FEW) if self._ahead else []

    @cached_property
    def _few_extra(self) -> Points:
        """(probability, seconds) that the same prompts add to the steps that they fill."""
        return [(share, seconds * self._extra_share) for share, seconds in self._few_ahead]

    @cached_property
    def _under_way(self) -> Points:
        """(probability, length in seconds) of the step that a request meets, of those that no prompt fills alone."""
        base, per_s = self._base_s, self.balance.per_s
        return condensed([(share * per_s * (base + extra), base + extra) for share, extra in self._packed_parts], _FEW)

    @property
    def _under_way_s(self) -> float:
        """Mean time until its end."""
        return sum(share * seconds for share, seconds in self._under_way) / 2

    @cached_property
    def _scheduled(self) -> Points:
        """(probability, seconds) of the step behind the one under way, which was scheduled when that one began.

        vLLM 0.32 v1/engine/core.py (step_with_batch_queue): two batches are queued, and a prompt joins the third.
        """
        if not self.engine.asynchronous or self.engine.stages > 1:
            return [(1.0, 0.0)]
        total = sum(share for share, _ in self._packed_parts)
        return condensed([(share / total, self._base_s + extra) for share, extra in self._packed_parts], _FEW)

    @property
    def _scheduled_s(self) -> float:
        """Mean time of it; none where no step is under way."""
        return sum(share for share, _ in self._under_way) * sum(share * seconds for share, seconds in self._scheduled)

    @cached_property
    def _packed(self) -> Points:
        """(probability, seconds) until the end of the steps that are under way and scheduled, and of what came during
        the former into the same step."""
        points: list[tuple[float, float]] = []
        for share, length in self._under_way:
            others = -math.expm1(-length * self._rate)
            more = min(self._chunk_s, length * self._rate * self.work_s / others)
            for weight, scheduled_s in self._scheduled:
                for part in _HALVES:
                    rest_s = part * length + scheduled_s
                    points += [
                        (share * weight * (1 - others) / 2, rest_s),
                        (share * weight * others / 2, rest_s + more),
                    ]
        return [*condensed(points, _PARTS), (max(0.0, 1 - sum(share for share, _ in points)), 0.0)]

    @property
    def _packed_s(self) -> float:
        """What other prompts add to the step in which a prompt ends."""
        return sum(share * seconds for share, seconds in self._packed) - self._under_way_s - self._scheduled_s

    def _met_in(self, gaps: float) -> float:
        """What prompts ahead and beside add to the first tokens of an answer, beyond those of usual steps.

        It waited while they came, so that they are more than in a usual step.
        """
        limit_s = gaps * self._chunk_s
        met_s = 0.0
        for share, extra_s in self._few_extra:
            met_s += share * min(extra_s, limit_s)
        return self._beside_s + met_s

    @cached_property
    def _beside_s(self) -> float:
        """Work that comes during the step that a request meets, beyond that of a usual step."""
        usual = sum(share * (self._base_s + extra) for share, extra in self._packed_parts)
        return max(0.0, self._rate * self.work_s * (2 * self._under_way_s - usual))

    @cached_property
    def _met_s(self) -> float:
        return sum(share * self._met_in(gaps) for share, gaps in self._few_answers)

    @cached_property
    def _usual_gap_s(self) -> float:
        """Mean gap long after the first token."""
        return self._decode.mean_s + self.prompt_share * self._running_step_s
