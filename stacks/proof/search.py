"""Finds the layout and the number of replicas that carry an order with the fewest GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from floor.counts import counted
from stacks.proof.case import Case
from stacks.proof.ends import MOST_REPLICAS, Ends
from stacks.proof.layouts import Layout, candidates
from stacks.proof.order import Order

# Layouts of more GPUs are looked at only where nothing smaller works.
_ROUNDS = ("node", "nodes")


def best(order: Order) -> Case:
    """The cheapest case that works, or the one that is nearest to it (with its problems).

    What works by the computed figures comes first; where nothing does, what works at the fast end of its band.
    """
    if order.layout:
        return with_replicas(order, order.layout)
    chosen: Case | None = None
    missing: list[Case] = []
    for reach in _ROUNDS[:1] if order.one_node else _ROUNDS:
        most = order.hardware.gpus_per_node * (1 if reach == "node" else 4)
        for case in _cases(order, most):
            if chosen is None or _rank(case) < _rank(chosen):
                chosen = case
            if case.load_problems:
                missing.append(case)
        # A load that a node does not carry in time is not carried sooner over a slower network.
        if chosen and not chosen.fit_problems:
            break
    if chosen and chosen.load_problems:
        chosen = min((case for case in missing if Ends(case).verdict == "uncertain"), key=_rank, default=chosen)
    return chosen or with_replicas(order, Layout(tensor=order.gpus or 1))


def _cases(order: Order, most: int) -> Iterator[Case]:
    if not order.one_node:
        most = max(most, order.gpus or 0)
    fewest = math.inf
    for layout in candidates(order.model, order.hardware, gpus=order.gpus, most=most):
        case = Case(order, layout, order.replicas or 1)
        if case.fit_problems:
            yield case
            continue
        # Fewer GPUs than one replica of the cheapest so far cannot be had from here on.
        if layout.gpus * (order.replicas or 1) > fewest:
            continue
        case = with_replicas(order, layout)
        if not case.problems:
            fewest = min(fewest, case.gpus)
        yield case


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


def with_replicas(order: Order, layout: Layout) -> Case:
    """The order on that layout with its own replicas, or with as few as its load needs."""
    if order.replicas or not order.load:
        return Case(order, layout, order.replicas or 1)
    first = Case(order, layout, 1)
    if first.fit_problems:
        return first
    low, high = 0, 1
    # More replicas make no single step faster: a target that an idle replica misses is missed by all.
    hopeless = bool(first.load_problems) and _hopeless(first)
    while (case := Case(order, layout, high)).load_problems:
        # Of those that keep up with the load, so that the target is named and not the load.
        if high >= MOST_REPLICAS or (hopeless and case.steady.stable):
            return case
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if not Case(order, layout, middle).load_problems else (middle, high)
    return Case(order, layout, high)


def _hopeless(case: Case) -> bool:
    """Whether the targets are missed even by a replica that has a request for itself."""
    load = case.order.load
    if load is None:
        return False
    calm = replace(case.order, load=replace(load, requests_per_s=1e-6))
    return bool(Case(calm, case.layout, 1).load_problems)
