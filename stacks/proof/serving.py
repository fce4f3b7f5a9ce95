"""Steady state of a model under load: requests that run, time between tokens, time to the first one.

One scheduler (a replica, or each data-parallel rank of one) takes steps in which running requests get a token each and
prompts are worked off in chunks. Decode steps leave the share 1 - r of time, r being the share that prompts take; so a
token comes every d(b) / (1 - r), with d(b) the decode step of b running requests, and b = arrivals x answer tokens x
that time (Little). Running requests are Poisson around b (M/G/infinity). Prompts queue for schedulers (M/G/k, see
`queueing`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from stacks.proof.demand import Load
from stacks.proof.queueing import NONE, Wait, sojourn_quantile, wait
from stacks.proof.roofline import Roofline

# Tokenising and streaming of a request: what a first token takes above its step (benchmarks/published.yaml, unloaded).
REQUEST_OVERHEAD_S = 0.005
# Gateway and picker on the way to a replica; estimated, above what benchmarks/gateway_latency.py measures.
PATH_S = 0.010
# Chunk of a prompt by which the marginal cost of a token is measured.
_CHUNK = 2048
_Z95 = 1.645
# Share of time that prompts may keep schedulers busy: beyond it a small surge becomes a long queue; estimated.
MOST_BUSY = 0.9


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """What one scheduler is and may do."""

    roofline: Roofline
    slots: int
    """Requests that it runs at once (max-num-seqs)."""
    batched_tokens: int
    """Tokens of one step (max-num-batched-tokens)."""
    stages: int = 1
    """Pipeline stages: so many batches are under way at once."""
    generates: bool = True


@dataclass(frozen=True)
class Steady:
    """`load` on `schedulers` engines of that kind, each with an equal part of it."""

    engine: Scheduler
    load: Load
    schedulers: int

    @property
    def arrivals_per_s(self) -> float:
        """Requests that one scheduler gets a second."""
        return self.load.requests_per_s / self.schedulers

    @cached_property
    def prompt_points(self) -> tuple[float, ...]:
        """Prompt tokens that are not in a cache, equally likely."""
        fresh = 1 - self.load.prefix_hit
        return tuple(max(1.0, tokens * fresh) for tokens in self.load.prompt_tokens.points)

    @cached_property
    def prompt_token_s(self) -> float:
        """Seconds that one more prompt token adds to a step, in large chunks."""
        reach = self.load.prompt_tokens.mean * (1 + self.load.prefix_hit) / 2
        chunk = min(_CHUNK, self.engine.batched_tokens)
        model = self.engine.roofline
        # Against a step that decodes: the weights are read once for both.
        alone = model.step_s(decodes=1, context=1)
        return max(0.0, model.step_s(prefill=chunk, reach=reach, decodes=1, context=1) - alone) / chunk

    @cached_property
    def prompt_share(self) -> float:
        """Share of a scheduler's time that prompts take; 1 and more is too much."""
        fresh = sum(self.prompt_points) / len(self.prompt_points)
        return self.arrivals_per_s * fresh * self.prompt_token_s / self.engine.stages

    def decode_s(self, running: float) -> float:
        """A decode step with that many running requests, each of the mean length so far."""
        context = self.load.prompt_tokens.mean + self.load.answer_tokens.mean / 2
        return self.engine.roofline.step_s(decodes=max(1.0, running / self.engine.stages), context=context)

    @cached_property
    def running(self) -> float:
        """Mean requests that one scheduler runs; infinite where it cannot keep up."""
        if not self.engine.generates:
            return 0.0
        free = 1 - self.prompt_share
        if free <= 0:
            return math.inf
        rate = self.arrivals_per_s * self.load.answer_tokens.mean / free
        running = 0.0
        for _ in range(60):
            wanted = rate * self.decode_s(running)
            if wanted > 4 * self.engine.slots:
                return math.inf
            if abs(wanted - running) < 1e-3:
                break
            running = wanted
        return running

    @property
    def stable(self) -> bool:
        """Whether the schedulers keep up with the load, with the slots that they have."""
        return self.prompt_share < 1 and self.running < self.engine.slots and self.prompt_utilisation <= MOST_BUSY

    @property
    def itl_mean_s(self) -> float:
        """Mean time between two tokens of a request."""
        if not self.engine.generates:
            return 0.0
        if not self.prompt_share < 1 or math.isinf(self.running):
            return math.inf
        return self.decode_s(self.running) / (1 - self.prompt_share)

    def itl_quantile_s(self, share: float) -> float:
        """Time between two tokens that this share does not exceed (at least 0.5).

        A gap is a decode step, and longer by the chunk of a prompt that rides in the same step.
        """
        if not self.engine.generates:
            return 0.0
        if not self.stable:
            return math.inf
        busy = min(self.engine.slots, self.running + (_Z95 if share > 0.5 else 0.0) * math.sqrt(self.running))
        decode = self.decode_s(busy)
        chunks = [math.ceil(tokens / self.engine.batched_tokens) for tokens in self.prompt_points]
        mixed = min(1.0, self.arrivals_per_s * sum(chunks) / len(chunks) * self.itl_mean_s / self.engine.stages)
        if mixed <= 1 - share:
            return decode
        # Of the steps that carry a chunk, those up to this rank are within the share.
        rank = 1 - (1 - share) / mixed
        sizes = sorted(size for tokens in self.prompt_points for size in self._chunk_sizes(tokens))
        return decode + sizes[min(len(sizes) - 1, int(rank * len(sizes)))] * self.prompt_token_s

    def _chunk_sizes(self, tokens: float) -> list[float]:
        full = int(tokens // self.engine.batched_tokens)
        rest = tokens - full * self.engine.batched_tokens
        return [float(self.engine.batched_tokens)] * min(full, 64) + ([rest] if rest >= 1 else [])

    @cached_property
    def prompt_service_s(self) -> tuple[float, ...]:
        """Time that a scheduler needs for a prompt, equally likely: its own work, and a decode step for each chunk."""
        return self._prompt_times(self.running if math.isfinite(self.running) else self.engine.slots)

    @cached_property
    def busiest_prompt_service_s(self) -> tuple[float, ...]:
        """The same of a scheduler whose every slot is taken, whatever the load: what waiting requests wait for."""
        return self._prompt_times(self.engine.slots)

    def _prompt_times(self, busy: float) -> tuple[float, ...]:
        step = self.decode_s(busy) if self.engine.generates else self.engine.roofline.step_s(decodes=1, context=1)
        return tuple(
            math.ceil(tokens / self.engine.batched_tokens) * step + tokens * self.prompt_token_s
            for tokens in self.prompt_points
        )

    @cached_property
    def prompt_wait(self) -> Wait:
        """Wait of a prompt for its turn. Prompts of a scheduler go one after the other; of a pipeline, one a stage."""
        times = self.prompt_service_s
        mean = sum(times) / len(times)
        spread = sum((time_s - mean) ** 2 for time_s in times) / len(times) / mean**2
        servers = self.schedulers * self.engine.stages
        return wait(servers=servers, arrivals_per_s=self.load.requests_per_s, service_s=mean, squared_variation=spread)

    @property
    def prompt_utilisation(self) -> float:
        """Share of time that a scheduler has a prompt to work on, decode steps in between included."""
        times = self.prompt_service_s
        return self.load.requests_per_s * sum(times) / len(times) / (self.schedulers * self.engine.stages)

    @cached_property
    def slot_wait(self) -> Wait:
        """Wait of a request for room among the running ones."""
        if not self.engine.generates:
            return NONE
        if not self.prompt_share < 1 or math.isinf(self.running):
            return Wait(probability=1.0, mean_s=math.inf)
        stay = self.load.answer_tokens.mean * self.itl_mean_s
        answers = self.load.answer_tokens
        second = sum(tokens**2 for tokens in answers.points) / len(answers.points)
        return wait(
            servers=self.engine.slots * self.schedulers,
            arrivals_per_s=self.load.requests_per_s,
            service_s=stay,
            squared_variation=second / answers.mean**2 - 1,
        )

    def ttft_quantile_s(self, share: float) -> float:
        """Time to the first token that this share of requests does not exceed; for other tasks, to the answer."""
        if not self.stable:
            return math.inf
        served = sojourn_quantile(share, self.prompt_service_s, (self.prompt_wait, self.slot_wait))
        return PATH_S + REQUEST_OVERHEAD_S + served
