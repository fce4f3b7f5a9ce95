"""Steady state of a model under load, as its users measure it: time to the first token, and between tokens.

`batch` has the means, `packing` what prompts do to steps; here are percentiles, targets and parts. docs/proof.md lists
what is modelled and what is left out; tests/unit/proof hold it against a simulated scheduler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from stacks.proof.batch import OVERLOADED, Prompt, prompt_of, step_times
from stacks.proof.demand import GAPS, LatencyTarget, Metric, Slo
from stacks.proof.front_end import FRONT_END, MOST_BUSY_SERVER, NO_SERVER, ServerTime
from stacks.proof.packing import Packing
from stacks.proof.queueing import NONE, Wait, wait
from stacks.proof.spreads import Sojourn, condensed, gamma_tail, normal_points, quantile

# Tokenising and streaming of a request: what a first token takes above its step (benchmarks/published.yaml, unloaded).
REQUEST_OVERHEAD_S = 0.005
# Gateway and picker on the way to a replica; estimated, above what benchmarks/gateway_latency.py measures.
PATH_S = 0.010
# Share of full steps that prompts may take: beyond it a small surge becomes a long queue; estimated.
MOST_BUSY = 0.9
# Shares of the time before a prompt's own steps that are drawn as one point each.
_BEFORE = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.93, 0.965, 0.985, 0.995, 1.0)
# A normal distribution in three points (Gauss and Hermite): weight, deviations.
_NODES = ((1 / 6, -math.sqrt(3)), (2 / 3, 0.0), (1 / 6, math.sqrt(3)))
# The same in more, of which the last ones are beyond p95 and p99: of the steps that an answer takes with drafts.
_STEPS = normal_points((0.02, 0.1, 0.3, 0.7, 0.9, 0.98))


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Mean time to the first token, in seconds, by what it is spent on."""

    path: float
    """Gateway and picker."""
    overhead: float
    """Request handling in the engine."""
    front_end: float
    """Of the API server, above what an unloaded one takes of a short prompt, which is in `overhead`."""
    queue: float
    """The rest of a step under way, the one that is scheduled, prompts ahead, and room among the running ones."""
    prefill: float
    """The prompt's own tokens."""
    decode: float
    """Steps that it shares with running requests: their tokens, and other prompts' that ride along."""
    saved: float
    """What the cache saves; not part of the sum."""

    @property
    def total(self) -> float:
        return self.path + self.overhead + self.front_end + self.queue + self.prefill + self.decode


@dataclass(frozen=True, kw_only=True)
class Heavy:
    """What one long request does to the others of its scheduler."""

    prompt: float
    """Its tokens, none of them in a cache."""
    answer: float
    gap_s: float
    """Time between two tokens of the others while its prompt is worked off, at the worst, which is at its end."""
    lasts_s: float
    """So long do they have such gaps, and so long do prompts behind it wait at most."""
    more_s: float
    """What it adds to each gap after that, until its answer ends."""


@dataclass(frozen=True)
class Steady(Packing):
    """What users of `load` on `schedulers` engines measure."""

    @cached_property
    def stable(self) -> bool:
        """Whether the schedulers keep up with the load, with the slots that they have."""
        return self.computes and self.server.busy <= MOST_BUSY_SERVER

    @cached_property
    def computes(self) -> bool:
        """The same of the schedulers by themselves, whatever is in front of them."""
        # What is cheaper to know comes first.
        return self.balance is not OVERLOADED and self.prompt_utilisation <= MOST_BUSY and self._held < self._slots

    @cached_property
    def server(self) -> ServerTime:
        """One API server: requests as they come, and what steps give."""
        shared, balance = self.engine.servers, self.balance
        if not shared or balance is OVERLOADED:
            return NO_SERVER
        steps_per_s, rate = balance.per_s * self.engine.stages, self.arrivals_per_s
        pieces = rate * (self.gaps + 1) / steps_per_s
        tokens = rate * (self.gaps * self.engine.tokens_per_step + 1) / steps_per_s
        return ServerTime(
            requests_per_s=rate / shared,
            request_s=FRONT_END.arriving_s(self._prompt_tokens),
            steps_per_s=steps_per_s / shared,
            outputs_s=FRONT_END.outputs_s(tokens, pieces),
        )

    @property
    def _prompt_tokens(self) -> float:
        """Of a mean request, cached ones included."""
        return sum(share * tokens for share, tokens in self._lengths)

    @cached_property
    def front_end_s(self) -> float:
        """Mean time that an API server adds to a first token, beyond what an unloaded one takes of a short prompt."""
        return self._tokenised_s(self._prompt_tokens) + self._shared_s

    def _tokenised_s(self, tokens: float) -> float:
        """What a prompt itself takes of it."""
        return tokens * FRONT_END.prompt_token_s if self.engine.servers else 0.0

    @property
    def _shared_s(self) -> float:
        """What others take of it, before a request and before its first piece."""
        # Of the pieces of a step, half are written before its own.
        others = max(0.0, self.server.outputs_s - FRONT_END.outputs_s(1.0, 1.0)) / 2
        return self.server.wait_s + others if self.engine.servers else 0.0

    @property
    def passed_requests_per_s(self) -> float:
        """Requests that all API servers pass, each in a piece a token; infinite without one that counts."""
        tokens = self.gaps * self.engine.tokens_per_step + 1
        passing_s = FRONT_END.streamed_s(self._prompt_tokens, tokens, self.gaps + 1)
        servers = self.engine.servers * self.schedulers
        return servers * MOST_BUSY_SERVER / passing_s if servers else math.inf

    @cached_property
    def _held(self) -> float:
        """Mean slots that are taken: by running requests, and by prompts that were begun."""
        state = self.balance
        begun = sum(p.share * ((p.full + 1) * state.step_s + p.full_s) for p in self.prompts)
        return self.running / self.engine.stages + self._rate * begun

    @cached_property
    def running(self) -> float:
        """Mean requests that one scheduler runs; infinite where it cannot keep up."""
        return self.arrivals_per_s * self.gaps * self.itl_mean_s if self.gaps else 0.0

    @property
    def itl_mean_s(self) -> float:
        """Mean time between what two steps give a request."""
        if not self.gaps:
            return 0.0
        if self.balance is OVERLOADED:
            return math.inf
        return self._usual_gap_s + self._met_s / (1 - self.prompt_share) / self.gaps

    def itl_beyond(self, seconds: float) -> float:
        """Share of gaps that are longer."""
        return self._added.beyond(seconds, self._decode)

    @cached_property
    def _stays(self) -> list[tuple[float, float, list[tuple[float, float, float, float, float]]]]:
        """By length of the answer: its share, its gaps, and what its stay can be.

        Each of these: probability, seconds without the prompts that come meanwhile, their number, mean sum, variance.
        """
        free, rate = 1 - self.prompt_share, self._rate
        none = 1 - sum(share for share, _ in self._few_ahead)
        stays = []
        for share, gaps in self._few_answers:
            limit_s = gaps * self._chunk_s
            second = sum(prompt.share * min(prompt.work_s, limit_s) ** 2 for prompt in self.prompts)
            # Over a stay the number of running requests is averaged, the more the longer it is.
            length = gaps / self.gaps
            calm = math.sqrt(2 * (length - 1 + math.exp(-length)) / length**2) if length > 1e-3 else 1.0
            cases = [(none * weight, seconds, 0.0) for weight, seconds in self._writing(gaps, calm)]
            cases += [
                (weight, self._steps(gaps) * self._decode.mean_s, min(ahead_s * self._extra_share, limit_s))
                for weight, ahead_s in self._few_ahead
            ]
            ways = []
            for weight, seconds, met_s in cases:
                base_s = seconds + met_s
                come = rate * (base_s / free)
                ways.append((weight, base_s, come, come * self.work_s, come * second / free**2))
            stays.append((share, gaps, ways))
        return stays

    def _writing(self, gaps: float, calm: float) -> list[tuple[float, float]]:
        """(probability, seconds) of an answer's decode steps, so many on average.

        calm: deviations of a step's time that are left of one, over the answer. With drafts the number of steps differs
        too: n tokens take n / m steps, with the variance n s^2 / m^3.
        """
        decode, engine = self._decode, self.engine
        if not engine.tokens_variance:
            return [(weight, gaps * decode.at(node * calm)) for weight, node in _NODES]
        mean, steps = engine.tokens_per_step, self._steps(gaps)
        tokens = gaps * mean
        spread = math.hypot(decode.at(calm) / decode.mean_s - 1, math.sqrt(engine.tokens_variance / gaps) / mean)
        # Every draft is accepted, or none.
        least, most = max(1.0, tokens / engine.width), max(1.0, tokens)
        return [
            (weight, decode.mean_s * min(most, max(least, steps * (1 + place * spread)))) for weight, place in _STEPS
        ]

    def _steps(self, gaps: float) -> float:
        """Steps of an answer that has `gaps` by its tokens alone: the last step may give more than are left.

        That is (s^2 / m + m - 1) / 2 tokens, on average over long answers (renewal theory, of whole numbers).
        """
        if not self.engine.tokens_variance:
            return gaps
        mean = self.engine.tokens_per_step
        beyond = gaps + (self.engine.tokens_variance / mean + mean - 1) / 2 / mean
        return max(1.0, min(beyond, gaps * mean))

    def tpot_beyond(self, seconds: float) -> float:
        """Share of requests whose mean time per token is longer. Of answers with a gap at least."""
        seconds *= self.engine.tokens_per_step
        total = late = 0.0
        for share, gaps, ways in self._stays:
            total += share
            for weight, base_s, come, mean, second in ways:
                late += share * weight * gamma_tail(seconds * gaps - base_s, mean, second, come)
        return late / total if total else 0.0

    @cached_property
    def slot_wait(self) -> Wait:
        """Wait of a request for room among the running ones."""
        if not self.engine.generates:
            return NONE
        if not self._held < self._slots:
            return Wait(probability=1.0, mean_s=math.inf)
        stay = self._held / self._rate
        second = sum(share * gaps**2 for share, gaps in self._answers)
        variation = second / self.gaps**2 - 1 if self.gaps else 0.0
        return wait(
            servers=max(1, round(self._slots * self._batches)),
            arrivals_per_s=self.load.requests_per_s,
            service_s=stay,
            squared_variation=variation,
        )

    def _own_s(self, prompt: Prompt) -> float:
        """From the first step with a token of a prompt to its end."""
        base = self._base_s
        return (prompt.full + 1) * base + prompt.work_s

    @cached_property
    def sojourn(self) -> Sojourn:
        """Time in the engine until the first token, with the tokenising of its own prompt."""
        ahead = [*self._ahead, (1 - sum(share for share, _ in self._ahead), 0.0)]
        lengths = zip(self.prompts, self._lengths, strict=True)
        own = [(prompt.share, self._own_s(prompt) + self._tokenised_s(tokens)) for prompt, (_, tokens) in lengths]
        before = condensed([(a * b, x + y) for a, x in self._packed for b, y in ahead], _BEFORE)
        return Sojourn.of(own, self.slot_wait, before=before, borders=self.load.prompt_tokens.borders)

    @cached_property
    def ttft(self) -> Parts:
        """Mean time to the first token, by its parts."""
        base = self._base_s
        prefill = self.work_s
        steps = sum(prompt.share * (prompt.full + 1) for prompt in self.prompts)
        saved = 0.0
        if self.load.prefix_hit:
            cold = self._prompts(self.times, self._room(self.balance.decodes), 0.0)
            saved = sum(p.share * ((p.full + 1) * base + p.work_s) for p in cold) - steps * base - prefill
        return Parts(
            path=PATH_S,
            overhead=REQUEST_OVERHEAD_S,
            front_end=self.front_end_s,
            queue=self._under_way_s
            + self._scheduled_s
            + sum(share * seconds for share, seconds in self._ahead)
            + (self.slot_wait.probability * self.slot_wait.mean_s if self.slot_wait.probability else 0.0),
            prefill=prefill,
            decode=steps * base + self._packed_s,
            saved=saved,
        )

    def busiest_prompts_s(self) -> tuple[float, float]:
        """Seconds that a mean prompt takes of a scheduler whose every slot is taken, and a long one until its end.

        Long is the 95th percentile. Whatever the load: it is what waiting requests wait for.
        """
        times = step_times(self.engine.roofline, self.times.context, self._slots)
        decodes = self._slots if self.engine.generates else 0.0
        base, room, hit = times.decode_s(decodes), self._room(decodes), self.load.prefix_hit
        mean = sum(p.share * (p.tokens / room * base + p.work_s) for p in self._prompts(times, room, hit))
        long = prompt_of(times, 1.0, min(self.load.prompt_tokens.p95, self.engine.context), hit, room)
        return mean / self.engine.stages, (long.full + 1) * base + long.work_s

    def heavy(self, prompt: float, answer: float) -> Heavy:
        """What one more request of that size does to the others; both are cut to what a request may have."""
        answer = min(answer, self.engine.context / 2)
        prompt = min(prompt, self.engine.context - answer)
        size = self._room(self.balance.decodes)
        chunks = self.times.full_chunks(prompt, 0.0, size)
        rest = prompt - math.floor(prompt / size) * size
        last = self.times.chunk_s(min(size, prompt), max(0.0, prompt - rest - size))
        whole = sum(chunk.steps * (self._base_s + chunk.extra_s) for chunk in chunks)
        if rest >= 1:
            whole += self._base_s + self.times.chunk_s(rest, prompt - rest)
        decodes = max(1.0, self.balance.decodes)
        context = (self.times.context * decodes + prompt + answer / 2) / (decodes + 1)
        later = self.engine.roofline.step_s(decodes=decodes + 1, context=context) - self.times.decode_s(decodes)
        return Heavy(
            prompt=prompt,
            answer=answer,
            gap_s=self._base_s + last,
            lasts_s=whole,
            more_s=max(0.0, later),
        )

    def beyond(self, metric: Metric, seconds: float) -> float:
        """Share of a metric's values that are longer; all of them where the load is not carried."""
        if not self.stable:
            return 1.0
        match metric:
            case "ttft":
                return self.sojourn.beyond(seconds - PATH_S - REQUEST_OVERHEAD_S - self._shared_s)
            case "itl":
                return self.itl_beyond(seconds) if self.gaps else 0.0
            case "tpot":
                return self.tpot_beyond(seconds) if self.gaps else 0.0

    def mean_gap_s(self, metric: Metric) -> float:
        """Mean step, and for TPOT its part for one of the tokens that it gives."""
        return self.itl_mean_s / (self.engine.tokens_per_step if metric == "tpot" else 1.0)

    def keeps(self, target: LatencyTarget) -> bool:
        """Whether the share is within the target, and for gaps the mean as well."""
        if target.metric in GAPS and self.stable and self.mean_gap_s(target.metric) * 1e3 > target.ms:
            return False
        return self.beyond(target.metric, target.ms / 1e3) <= 1 - target.share + 1e-9

    def quantile_s(self, metric: Metric, share: float) -> float:
        """The time that this share of a metric's values does not exceed; for other tasks, TTFT is to the answer."""
        if not self.stable:
            return math.inf
        if metric == "ttft":
            return PATH_S + REQUEST_OVERHEAD_S + self._shared_s + self.sojourn.quantile(share)
        if not self.gaps:
            return 0.0
        low = self.times.decode_s(1.0) / (self.engine.tokens_per_step if metric == "tpot" else 1.0)
        return quantile(share, lambda seconds: self.beyond(metric, seconds), low, 2 * self.mean_gap_s(metric))

    def figure_s(self, target: LatencyTarget) -> float:
        """What is held against a target: the percentile, and for gaps the mean where that is more."""
        figure = self.quantile_s(target.metric, target.share)
        return max(figure, self.mean_gap_s(target.metric)) if target.metric in GAPS and self.stable else figure

    def within(self, slo: Slo) -> bool:
        """Whether the load is carried within every target."""
        mean_ms = slo.mean_step_ms(self.engine.tokens_per_step)
        # Cheaper to know than the rest.
        if not self.stable or (self.gaps and mean_ms is not None and self._usual_gap_s * 1e3 > mean_ms):
            return False
        return all(self.keeps(target) for target in slo.targets)

    def itl_quantile_s(self, share: float) -> float:
        """Time between two tokens that this share of gaps does not exceed."""
        return self.quantile_s("itl", share)

    def ttft_quantile_s(self, share: float) -> float:
        """Time to the first token that this share of requests does not exceed."""
        return self.quantile_s("ttft", share)

    def mean_s(self, metric: Metric) -> float:
        """The mean over requests (TTFT, TPOT) or over gaps between steps (ITL)."""
        if not self.stable:
            return math.inf
        if metric == "ttft":
            return self.ttft.total
        if metric == "itl" or not self._few_answers:
            return self.mean_gap_s(metric)
        # Of a short answer, what its first tokens meet is a larger part, and the rest of its last step.
        total = sum(share for share, _ in self._few_answers)
        writing = self._usual_gap_s * sum(share * self._steps(gaps) / gaps for share, gaps in self._few_answers) / total
        met = sum(share * self._met_in(gaps) / gaps for share, gaps in self._few_answers) / total
        return (writing + met / (1 - self.prompt_share)) / self.engine.tokens_per_step
