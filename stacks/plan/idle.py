"""What a site's GPUs cost over a time, and how many tokens they carry in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import mul

from stacks.facts.hardware import GPUS
from stacks.plan.guarantees import request_tokens
from stacks.plan.models import ModelPlan
from stacks.plan.orders import prices_of
from stacks.plan.placing import nodes_of
from stacks.plan.site_plan import SitePlan
from stacks.proof.demand import Prices
from stacks.proof.figures import Span
from stacks.proof.money import gpu_hourly, hourly

_HOUR_S = 3600


@dataclass(frozen=True, kw_only=True)
class GpuCost:
    """GPUs of one model, or those that none has."""

    model: str
    """Empty for GPUs of none."""
    gpus: float
    """Whole ones; a slice is its part."""
    cost: float
    """In the currency of the site's prices, power at full load included."""
    tokens: float = 0.0
    """That they carry within the targets, by the computed figures; 0 without a load."""
    tokens_span: Span = field(default_factory=partial(Span, fast=None, slow=None))
    """The same at both ends of the band, as far as they carry any."""


def gpus_of(plan: SitePlan) -> float | None:
    """GPUs of the nodes that take replicas, in whole ones; None where the site does not list these."""
    nodes = nodes_of(plan.site)
    return None if nodes is None else sum(node.gpus * GPUS[node.gpu].share for node in nodes)


def gpu_costs(plan: SitePlan, hours: float) -> list[GpuCost]:
    """Of each model with all replicas that the site sets, by name, and then of GPUs that none has.

    Raises ValueError for a site without prices.
    """
    prices = prices_of(plan.site.prices)
    if prices is None:
        raise ValueError("the site sets no prices")
    costs = [_of_model(model, prices, hours) for model in plan.models.values()]
    rest = (gpus_of(plan) or 0.0) - sum(cost.gpus for cost in costs)
    if rest > 0:
        costs.append(GpuCost(model="", gpus=rest, cost=rest * hours * gpu_hourly(GPUS[plan.site.cluster.gpu], prices)))
    return costs


def _of_model(model: ModelPlan, prices: Prices, hours: float) -> GpuCost:
    proofs = [revision.proof for revision in model.revisions.values()]
    carried, spans = 0.0, list[Span]()
    for proof in proofs:
        if capacity := proof.serving.get("capacity"):
            tokens = request_tokens(proof) * hours * _HOUR_S
            carried += capacity.value * tokens
            spans += [capacity.span.mapped(partial(mul, tokens))] if capacity.span else []
    return GpuCost(
        model=model.name,
        gpus=sum(proof.case.gpus * proof.order.hardware.share for proof in proofs),
        cost=hours * sum(hourly(proof.case, prices) for proof in proofs),
        tokens=carried,
        tokens_span=Span(fast=_sum(end.fast for end in spans), slow=_sum(end.slow for end in spans)),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
