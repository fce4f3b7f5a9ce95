"""Finds the layout and the number of replicas that carry an order with the fewest GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from floor import gpu_nodes
from floor.counts import counted
from stacks.proof.case import Case
from stacks.proof.ends import CALM, MOST_REPLICAS, Ends
from stacks.proof.layouts import Layout, candidates
from stacks.proof.order import Order

# Nodes that a replica may be on. Layouts of more GPUs are looked at only where nothing smaller works.
_REACHES = (1, gpu_nodes.MOST_OF_A_REPLICA)


def best(order: Order, known: Case | None = None) -> Case:
    """The cheapest case that works, or the one that is nearest to it (with its problems).

    What works by the computed figures comes first; where nothing does, what works at the fast end of its band.

    known: a case that works and was found under an order that prefers other layouts: what cannot come before it is not
    looked at.
    """
    if order.layout:
        return _on(order, order.layout)
    chosen: Case | None = None
    seen: list[Case] = []
    before = 0
    for nodes in _REACHES[:1] if order.one_node else _REACHES:
        most = order.hardware.gpus_per_node * nodes
        if not order.one_node:
            most = max(most, order.gpus or 0)
        seen += _cases(order, known, beyond=before, most=most)
        chosen, before = min(seen, key=_rank, default=None), most
        # A load that a node does not carry in time is not carried sooner over a slower network.
        if chosen and not chosen.fit_problems:
            break
    if chosen and chosen.load_problems:
        missing = (case for case in seen if case.load_problems and Ends(case).verdict == "uncertain")
        chosen = min(missing, key=_rank, default=chosen)
    return chosen or Case(order, Layout(tensor=order.gpus or 1), order.replicas or 1)


def _cases(order: Order, known: Case | None, *, beyond: int, most: int) -> Iterator[Case]:
    """A case for each layout of more than `beyond` GPUs that may be the best one, small layouts first."""
    limit = _Limit(order)
    layouts = list(candidates(order.model, order.hardware, gpus=order.gpus, most=most))
    # A layout that a site names need not be one that is searched.
    if known and known.layout in layouts:
        limit.lower(known.under(order))
    for layout in layouts:
        replicas = limit.replicas(layout)
        if layout.gpus <= beyond or replicas < (order.replicas or 1):
            continue
        case = known.under(order) if known and layout == known.layout else _on(order, layout, replicas)
        limit.lower(case)
        yield case


def _on(order: Order, layout: Layout, useful: int = MOST_REPLICAS) -> Case:
    """The order on that layout with its own replicas, or with as few as its load needs."""
    case = Case(order, layout, order.replicas or 1)
    return case if order.replicas or not order.load else with_replicas(case, useful=useful)


class _Limit:
    """What a case must be to come before those that were found: `_rank` without what takes a steady state to know."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._gpus, self._kind = 0, (False, 0)

    def _kind_of(self, layout: Layout) -> tuple[bool, int]:
        return self._order.simple and not layout.tensor_alone, layout.pipeline

    def replicas(self, layout: Layout) -> int:
        """The most replicas of that layout with which it still comes before."""
        if not self._gpus:
            return MOST_REPLICAS
        gpus = self._gpus if self._kind_of(layout) <= self._kind else self._gpus - 1
        return min(MOST_REPLICAS, gpus // layout.gpus)

    def lower(self, case: Case) -> None:
        """Take note of a case."""
        own = (case.gpus, self._kind_of(case.layout))
        if not case.problems and (not self._gpus or own < (self._gpus, self._kind)):
            self._gpus, self._kind = own


def _rank(case: Case) -> tuple[float, ...]:
    """Fewer problems first, then fewer GPUs, then tensor alone if so ordered, no pipeline, and the shorter wait."""
    order, kinds = case.order, {problem.kind for problem in case.problems}
    severity = sum(
        weight for kind, weight in {"illegal": 16, "precision": 8, "weights": 8, "context": 4}.items() if kind in kinds
    ) + len(kinds)
    if case.fit_problems:
        return (severity, case.layout.pipeline, case.weights, case.layout.gpus, case.layout.data)
    speed = case.token_s(1)
    if order.load:
        gap_s = case.steady.itl_mean_s / order.tokens_per_step
        speed = gap_s + case.steady.ttft_quantile_s(0.95) / max(1.0, order.load.answer_tokens.mean)
    divided = order.simple and not case.layout.tensor_alone
    return (severity, case.gpus, divided, case.layout.pipeline, speed, case.layout.data)


def reason(case: Case) -> str:
    """Why this layout and no other."""
    order = case.order
    if order.layout:
        return "as the site sets it"
    sizes = f"{counted(order.gpus, 'GPU')}, as the site sets it" if order.gpus else "the fewest GPUs that do"
    if not order.simple:
        return f"{sizes}, and of those the fastest"
    if case.layout.tensor_alone:
        return f"{sizes}, and tensor parallelism alone where that is enough"
    return f"{sizes}; tensor parallelism alone would take more, or does not hold"


def with_replicas(first: Case, *, useful: int = MOST_REPLICAS) -> Case:
    """The case of a single replica with as few as its load needs, or as many as are tried, with its problems.

    More than `useful` ones are of no use to the caller: where those have problems, they are the outcome.
    """

    @cache
    def at(replicas: int) -> Case:
        return first if replicas == 1 else first.again(replicas=replicas)

    if first.fit_problems:
        return first
    if useful < MOST_REPLICAS and at(useful).load_problems:
        return at(useful)
    low, high = 0, 1
    # More replicas make no single step faster: a target that an idle replica misses is missed by all.
    hopeless = bool(first.load_problems and first.again(requests_per_s=CALM).load_problems)
    while at(high).load_problems:
        # Of those that keep up with the load, so that the target is named and not the load.
        if high >= MOST_REPLICAS or (hopeless and at(high).steady.stable):
            return at(high)
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if not at(middle).load_problems else (middle, high)
    return at(high)
