"""One scheduler of vLLM: what it runs, what waits, and how long each of its steps takes.

After vLLM 0.32 (v1/core/sched/scheduler.py): running requests get a token each, the rest of the step's tokens goes to
prompts in the order in which they came, in chunks. A waiting request starts if a slot is free, its adapter may run
(`places.py`) and its whole prompt finds room. If the cache is full, the last one that started gives its room back and
computes everything again later.

With drafts the steps of an answer are drawn when it begins, and each of them is one piece for its client. Until its end
a request writes evenly, so the cache and the contexts are right on average.

Steps without a prompt in them are taken together, up to the next one that ends or starts a request.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from stacks.proof.front_end import FrontEnd
from stacks.proof.speculation import Speculation
from stacks.whatif.jobs import Job
from stacks.whatif.places import Places, PlacesPlan
from stacks.whatif.prefixes import PrefixCache
from stacks.whatif.steps import StepTime
from stacks.whatif.tally import Tally

NEVER = math.inf
# Sums of times that are equal differ by less.
_SAME_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class RankPlan:
    """What one scheduler may do."""

    step_s: StepTime
    slots: int
    """Requests that it runs at once (max-num-seqs)."""
    batched_tokens: int
    """Tokens of one step (max-num-batched-tokens)."""
    prompt_step_tokens: int | None = None
    """Of these, those of one prompt while others run (long-prefill-token-threshold)."""
    cache_tokens: int
    """Tokens that its KV cache holds."""
    asynchronous: bool = False
    """Whether a step is scheduled when the one before begins, so that a prompt joins none that is scheduled."""
    generates: bool = True
    """Whether answers are written; else a request ends with its prompt."""
    speculation: Speculation | None = None
    """What drafts; `step_s` has its time."""
    places: PlacesPlan | None = None
    """None where no request waits for another's adapter."""

    @property
    def width(self) -> int:
        """What a running request takes of the tokens of a step."""
        return self.speculation.budgeted if self.speculation else 1


class Rank:
    """State of one scheduler; the simulation calls `wake` at `wake_s`, and `submit` in between."""

    def __init__(
        self, plan: RankPlan, tally: Tally, tiers: int, answered: Callable[[Job], None], chances: Random
    ) -> None:
        """chances: by which drafts are accepted."""
        self._plan, self._tally, self._answered, self._chances = plan, tally, answered, chances
        self.cache = PrefixCache(plan.cache_tokens)
        self.places = Places(plan.places)
        self.waiting: deque[Job] = deque()
        self.wake_s = NEVER
        self.version = 0
        """Changes with `wake_s`."""
        self._prompts: list[Job] = []
        # (count of steps at its end, order of start, request), a heap.
        self._writing: list[tuple[int, int, Job]] = []
        self._by_tier = [0] * tiers
        # Tokens that they get from a step, by tier.
        self._growth = [0.0] * tiers
        # Tokens of all requests that write, prompts included.
        self._context = 0.0
        self._steps = 0
        self._started = 0
        self._planned: tuple[float, int, float] = (0.0, 0, 0.0)
        self._chunks: list[tuple[Job, int]] = []
        # For which the step waits until adapters are in their places.
        self._loads_s = 0.0
        # When the last step began.
        self._scheduled_s = 0.0
        # Whether a request waits for the next step only because it came after that was scheduled.
        self._late = False

    @property
    def running(self) -> int:
        """Requests that have a slot."""
        return len(self._prompts) + len(self._writing)

    @property
    def load(self) -> float:
        """What vLLM balances its ranks by (v1/engine/core_client.py): waiting requests count more with a full cache."""
        waiting = len(self.waiting)
        return waiting + self.running + waiting * 6 * max(0.0, self.cache.share - 0.5)

    @property
    def awaited(self) -> frozenset[int]:
        """Adapters of requests that wait."""
        named = (job.arrival.adapter for job in self.waiting) if self._plan.places else ()
        return frozenset(adapter for adapter in named if adapter is not None)

    def outputs_share(self, front_end: FrontEnd) -> float:
        """Share of an API server's time that the steps under way take, each token in a piece of its own."""
        if self.wake_s == NEVER:
            return 0.0
        return front_end.outputs_s(sum(self._growth), len(self._writing)) / self._planned[2]

    def jobs(self) -> list[Job]:
        """All requests that are here."""
        return [*self.waiting, *self._prompts, *(job for _, _, job in self._writing)]

    def submit(self, job: Job, now: float) -> None:
        """Take a request. It starts with the next step that has a place for it."""
        self.waiting.append(job)
        job.came_s = now
        if self.wake_s == NEVER:
            self._plan_step(now)
        elif not self._chunks and self._may_start(job) and self.running < self._plan.slots:
            began, count, step_s = self._planned
            # The step under way, and where the next one is scheduled, that one.
            done = max(1, math.ceil((now - began) / step_s - 1e-9)) + self._plan.asynchronous
            if done < count:
                self._planned = (began, done, step_s)
                self._set(began + done * step_s)

    def _may_start(self, newest: Job) -> bool:
        """Whether nothing before it in the queue keeps the newest request from the next step."""
        return next((job for job in self.waiting if self.places.admits(job.arrival.adapter)), None) is newest

    def stop(self) -> list[Job]:
        """Lose everything; what was under way."""
        jobs = self.jobs()
        self.waiting.clear()
        self._prompts, self._writing, self._chunks = [], [], []
        self._by_tier = [0] * len(self._by_tier)
        self._growth = [0.0] * len(self._growth)
        self._context = 0.0
        self.cache, self.places = PrefixCache(self._plan.cache_tokens), Places(self._plan.places)
        self._set(NEVER)
        return jobs

    def wake(self, now: float) -> None:
        """The planned steps are over."""
        began, count, step_s = self._planned
        self._scheduled_s = began + (count - 1) * step_s
        running = len(self._writing)
        if running:
            for tier, writing in enumerate(self._by_tier):
                if writing:
                    self._tally.gaps(now, tier, step_s, writing * count, self._growth[tier] * count)
            written = sum(self._growth) * count
            self._context += written
            self.cache.answers += written
        self._steps += count
        chunks, self._chunks = self._chunks, []
        for job, tokens in chunks:
            job.left -= tokens
            if not job.left:
                self._begin_answer(job, now)
        while self._writing and self._writing[0][0] <= self._steps:
            self._end(heapq.heappop(self._writing)[2], now)
        self.cache.make_room()
        self._plan_step(now)

    def _set(self, wake_s: float) -> None:
        self.wake_s = wake_s
        self.version += 1

    def _plan_step(self, now: float) -> None:
        full = self._late = False
        while self._writing and self.cache.room < sum(self._growth) and self._throw_out(now):
            full = True
        running = len(self._writing)
        budget = self._plan.batched_tokens - running * self._plan.width
        others = running + len(self._prompts) + len(self.waiting) > 1
        most = self._plan.prompt_step_tokens if others and self._plan.prompt_step_tokens else budget
        for job in self._prompts:
            if budget <= 0:
                break
            chunk = min(job.left, budget, most)
            self._chunks.append((job, chunk))
            budget -= chunk
        # Where nothing else runs, no step is scheduled ahead.
        last_s = self._scheduled_s + _SAME_S if self._plan.asynchronous and self.running else NEVER
        passed: list[Job] = []
        while not full and budget > 0 and self.waiting and self.running < self._plan.slots:
            job = self.waiting[0]
            if job.came_s > last_s:
                self._late = True
                break
            if not self.places.admits(job.arrival.adapter):
                passed.append(self.waiting.popleft())
                continue
            # A prompt that is larger than the whole cache would block the queue for ever.
            if not self.cache.fits(job.arrival.parts, self._unshared(job) + job.written) and self.running:
                break
            self.waiting.popleft()
            self._start(job)
            chunk = min(job.left, budget, most)
            self._chunks.append((job, chunk))
            budget -= chunk
        self.waiting.extendleft(reversed(passed))
        if self._chunks:
            self._plan_mixed(now, running)
        elif running:
            self._plan_answers(now, running)
        else:
            self._set(NEVER)

    def _plan_mixed(self, now: float, running: int) -> None:
        """One step with prompts in it."""
        tokens, reach = 0, 0.0
        for job, chunk in self._chunks:
            tokens += chunk
            # Its first token attends to all before it, its last one to the chunk too.
            reach += chunk * (job.arrival.prompt + job.written - job.left + chunk / 2)
        step_s = self._plan.step_s(tokens, reach / tokens, running, self._context / running if running else 0.0)
        step_s += self._loads_s
        self._loads_s = 0.0
        self._planned = (now, 1, step_s)
        self._set(now + step_s)

    def _plan_answers(self, now: float, running: int) -> None:
        """Steps up to the next one that ends a request, or that finds the cache full."""
        growth = sum(self._growth)
        count = max(1, min(self._writing[0][0] - self._steps, int(self.cache.room // growth)))
        if self._late:
            count = 1
        context = (self._context + growth * count / 2) / running
        step_s = self._plan.step_s(0, 0.0, running, context)
        self._planned = (now, count, step_s)
        self._set(now + count * step_s)

    @staticmethod
    def _unshared(job: Job) -> int:
        """Tokens of a prompt that are no part of any text."""
        return job.arrival.prompt - sum(part.tokens for part in job.arrival.parts)

    def _start(self, job: Job) -> None:
        arrival = job.arrival
        hit = self.cache.hit(arrival.parts, arrival.prompt, again=job.cached >= 0)
        if job.cached < 0:
            job.cached = hit
            self._tally.started(job)
        job.left = arrival.prompt + job.written - hit
        self.cache.hold(arrival.parts)
        self.cache.answers += self._unshared(job) + job.written
        self.cache.make_room()
        self._loads_s += self.places.start(arrival.adapter)
        self._started += 1
        job.admitted = self._started
        self._prompts.append(job)

    def _begin_answer(self, job: Job, now: float) -> None:
        """Its prompt is computed, and the step gives the first token (or the next one, after it was thrown out)."""
        self._prompts.remove(job)
        arrival = job.arrival
        if math.isinf(job.first_s):
            job.first_s = now
            self._tally.first(job, now)
        else:
            self._tally.gaps(now, arrival.tier, now - job.ended_s, 1, 1.0)
        job.written += 1
        self.cache.answers += 1
        self._context += arrival.prompt + job.written
        self._by_tier[arrival.tier] += 1
        job.began_at = self._steps
        more = arrival.answer - job.written if self._plan.generates else 0
        steps = self._plan.speculation.steps_of(more, self._chances) if self._plan.speculation else more
        job.per_step = more / steps if steps else 0.0
        self._growth[arrival.tier] += job.per_step
        heapq.heappush(self._writing, (self._steps + steps, job.admitted, job))

    def _leave(self, job: Job) -> None:
        """Take a request that was writing out of the sums."""
        self._context -= job.arrival.prompt + job.written
        since = job.per_step * (self._steps - job.began_at)
        job.written += round(since)
        self._context -= since
        self.cache.answers += round(since) - since
        self._by_tier[job.arrival.tier] -= 1
        self._growth[job.arrival.tier] -= job.per_step

    def _end(self, job: Job, now: float) -> None:
        self._leave(job)
        self.places.end(job.arrival.adapter)
        self.cache.answers -= self._unshared(job)
        self.cache.release(job.arrival.parts, job.written)
        job.answered, job.end, job.ended_s = job.written, "answered", now
        self._answered(job)

    def _throw_out(self, now: float) -> bool:
        """Give the room of the last one that started to the others; False where there is but one."""
        if self.running < 2:
            return False
        victim = max((*self._prompts, *(job for _, _, job in self._writing)), key=lambda job: job.admitted)
        if victim in self._prompts:
            self._prompts.remove(victim)
        else:
            self._writing = [entry for entry in self._writing if entry[2] is not victim]
            heapq.heapify(self._writing)
            self._leave(victim)
            victim.ended_s = now
        self.places.end(victim.arrival.adapter)
        self.cache.answers -= self._unshared(victim) + victim.written
        self.cache.release(victim.arrival.parts, 0)
        self.waiting.appendleft(victim)
        self._tally.thrown_out += 1
        return True
