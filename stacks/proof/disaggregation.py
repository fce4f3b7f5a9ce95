"""Prompts and answers on replicas of their own, as an estimate beside the layout that is deployed; never chosen.

A prefill replica computes a prompt, its cache moves over the network, and a decode replica gives every token. Decode
steps then carry no prompts. A prefill replica is a queue for itself (Pollaczek and Khinchine), as if the picker saw
none of them; each prompt takes its own steps. The decode pool is the steady state of `serving` with prompts that are
cached already. The whole cache of a prompt is moved, also what a decode replica may have of it, and nothing overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from stacks.proof.case import Case
from stacks.proof.demand import GAPS, NO_TARGETS, LatencyTarget, Load, Slo, Spread
from stacks.proof.ends import MOST_REPLICAS
from stacks.proof.layouts import Layout, candidates
from stacks.proof.order import Order
from stacks.proof.queueing import Wait, wait
from stacks.proof.roofline import CALIBRATION
from stacks.proof.search import best
from stacks.proof.serving import MOST_BUSY, PATH_S, REQUEST_OVERHEAD_S
from stacks.proof.spreads import Sojourn

# The one token that a prefill replica gives.
_ONE = Spread(1, 1)
# Share of its time that a prefill replica may compute, also without a target of TTFT: a queue of its own grows with
# 1 / (1 - share). Published pools are that busy: 45 x 5,000 tokens/s over eight workers of 33,821 each (llm-d/llm-d
# guides/pd-disaggregation).
_MOST_BUSY_PREFILL = 0.83


@dataclass(frozen=True)
class Prefill:
    """`replicas` of `case`'s layout that compute prompts alone; the case's load is the model's, with one token each."""

    case: Case
    replicas: int

    @property
    def gpus(self) -> int:
        return self.case.layout.gpus * self.replicas

    @cached_property
    def own(self) -> tuple[tuple[float, float], ...]:
        """(share, seconds) of prompts by themselves."""
        steady = self.case.steady
        base = steady.times.decode_s(1.0)
        return tuple((prompt.share, (prompt.full + 1) * base + prompt.work_s) for prompt in steady.prompts)

    @cached_property
    def mean_s(self) -> float:
        return sum(share * seconds for share, seconds in self.own)

    @property
    def arrivals_per_s(self) -> float:
        """Of one scheduler."""
        return _load(self.case.order).requests_per_s / (self.replicas * self.case.layout.data)

    @property
    def busy(self) -> float:
        """Share of its time that a scheduler computes."""
        return self.arrivals_per_s * self.mean_s

    @cached_property
    def wait(self) -> Wait:
        """For the prompts ahead."""
        second = sum(share * seconds**2 for share, seconds in self.own)
        variation = second / self.mean_s**2 - 1
        return wait(
            servers=1, arrivals_per_s=self.arrivals_per_s, service_s=self.mean_s, squared_variation=max(0.0, variation)
        )

    @cached_property
    def sojourn(self) -> Sojourn:
        """From its arrival until a prompt is computed."""
        return Sojourn.of(self.own, self.wait)

    @property
    def sojourn_mean_s(self) -> float:
        return self.mean_s + (self.wait.probability * self.wait.mean_s if self.wait.probability else 0.0)


@dataclass(frozen=True)
class Split:
    """Both pools at the declared load."""

    prefill: Prefill
    decode: Case

    @property
    def gpus(self) -> int:
        return self.prefill.gpus + self.decode.gpus

    @cached_property
    def transfer_s(self) -> float:
        """The mean prompt's cache over the network: what a GPU of the smaller side has to send or to take."""
        tokens = _load(self.decode.order).prompt_tokens.mean
        per_gpu = max(case.cache.request_bytes(tokens) for case in (self.prefill.case, self.decode))
        return per_gpu / (self.decode.order.hardware.network_bytes_per_s * CALIBRATION.link)

    @cached_property
    def network_busy(self) -> float:
        """Share of the network that caches take, on the side with fewer schedulers."""
        fewer = min(self.prefill.replicas * self.prefill.case.layout.data, self.decode.schedulers)
        return _load(self.decode.order).requests_per_s / fewer * self.transfer_s

    @cached_property
    def after_s(self) -> float:
        """From a computed prompt to the first token: its cache moves, and it joins a decode step."""
        return self.transfer_s + self.decode.steady.ttft.total - PATH_S - REQUEST_OVERHEAD_S

    @property
    def ttft_mean_s(self) -> float:
        return PATH_S + REQUEST_OVERHEAD_S + self.prefill.sojourn_mean_s + self.after_s

    def ttft_quantile_s(self, share: float) -> float:
        """The time to the first token that this share of requests does not exceed."""
        return PATH_S + REQUEST_OVERHEAD_S + self.prefill.sojourn.quantile(share) + self.after_s

    def keeps(self, target: LatencyTarget) -> bool:
        """Whether a target holds."""
        if target.metric == "ttft":
            return self.ttft_quantile_s(target.share) * 1e3 <= target.ms
        return self.decode.steady.keeps(target)

    def holds(self, slo: Slo) -> bool:
        """Whether both pools keep up, and every target holds."""
        if not self.decode.steady.stable or self.prefill.busy > _MOST_BUSY_PREFILL or self.network_busy > MOST_BUSY:
            return False
        return all(self.keeps(target) for target in slo.targets)


def fewest(order: Order) -> Split | None:
    """The split with the fewest GPUs that carries the load within the targets, with no spare replica; None without one.

    Raises ValueError where no load is declared.
    """
    decode = best(decode_order(order))
    if decode.problems:
        return None
    least: Split | None = None
    for layout in _layouts(order):
        split = _with_enough(order, layout, decode)
        if split and (least is None or (split.gpus, split.ttft_mean_s) < (least.gpus, least.ttft_mean_s)):
            least = split
    return least


def _with_enough(order: Order, layout: Layout, decode: Case) -> Split | None:
    """With as few prefill replicas of this layout as hold."""
    case = prefill_case(order, layout)
    if case.fit_problems:
        return None
    low, high = 0, 1
    while not Split(Prefill(case, high), decode).holds(order.slo):
        if high >= MOST_REPLICAS or _hopeless(order, case, decode):
            return None
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if Split(Prefill(case, middle), decode).holds(order.slo) else (middle, high)
    return Split(Prefill(case, high), decode)


def _hopeless(order: Order, case: Case, decode: Case) -> bool:
    """Whether no number of these prefill replicas holds."""
    return not Split(Prefill(case, MOST_REPLICAS), decode).holds(order.slo)


def _layouts(order: Order) -> Iterator[Layout]:
    """Within a node, and without pipelines: prompts gain nothing from them that more replicas do not give."""
    for layout in candidates(order.model, order.hardware, most=order.hardware.gpus_per_node):
        if layout.pipeline == 1:
            yield layout


def prefill_case(order: Order, layout: Layout) -> Case:
    """The prompts on one replica, with as much of its memory as they take."""
    return Case(free_order(order, replace(_load(order), answer_tokens=_ONE), NO_TARGETS), layout, 1)


def decode_order(order: Order) -> Order:
    """What the decode pool has to carry: the answers, behind prompts that are in its cache."""
    return free_order(order, replace(_load(order), prefix_hit=1.0), Slo(order.slo.of_metrics(*GAPS)))


def free_order(order: Order, load: Load | None, slo: Slo) -> Order:
    """The order with layout, replicas and settings left to the proof."""
    return replace(
        order,
        load=load,
        slo=slo,
        layout=None,
        gpus=None,
        replicas=None,
        simple=False,
        max_num_seqs=None,
        max_num_batched_tokens=None,
    )


def _load(order: Order) -> Load:
    if order.load is None:
        raise ValueError("no load is declared")
    return order.load


def smallest_replica(order: Order) -> float:
    """GPUs of the smallest replica that fits; infinite where none fits on a node."""
    case = _smallest(order)
    return case.layout.gpus if case else math.inf


def one_is_enough(order: Order) -> bool:
    """Whether the smallest replica that fits carries the load by itself: two pools take more GPUs than that.

    The joint layout is not searched for that.
    """
    case = _smallest(free_order(order, order.load, order.slo))
    return case is not None and not case.load_problems


def _smallest(order: Order) -> Case | None:
    """One replica of the smallest layout that fits on a node, if one does."""
    cases = (Case(order, layout, 1) for layout in _layouts(order))
    return next((case for case in cases if not case.fit_problems), None)
