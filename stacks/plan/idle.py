"""What a site's GPUs cost over a time, how many tokens they carry in it, and who is billed for GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from operator import mul

from components.specs.usage import DedicatedGpus
from stacks.facts.hardware import GPUS
from stacks.plan.guarantees import request_tokens
from stacks.plan.models import ModelPlan
from stacks.plan.orders import prices_of
from stacks.plan.placing import nodes_of
from stacks.plan.site_plan import SitePlan
from stacks.proof.demand import Prices
from stacks.proof.figures import Span
from stacks.proof.money import gpu_hourly, hourly
from stacks.proof.proof import Proof

_DAY_H, _HOUR_S, _PICO = 24, 3600, 10**12


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
    costs = [
        _of(model.name, [revision.proof for revision in model.revisions.values()], prices, hours)
        for model in plan.models.values()
    ]
    rest = (gpus_of(plan) or 0.0) - sum(cost.gpus for cost in costs)
    if rest > 0:
        costs.append(GpuCost(model="", gpus=rest, cost=rest * hours * gpu_hourly(GPUS[plan.site.cluster.gpu], prices)))
    return costs


@dataclass(frozen=True, kw_only=True)
class BilledIdle:
    """Of a revision whose idle GPUs are billed."""

    carried: int
    """Tokens of a day within the targets, by the computed figures."""
    price: int
    """Pico-units of the currency for a second of all its GPUs, as much of it as is billed."""
    callers: tuple[str, ...]
    """Tenants that it answers while all replicas run."""


def billed_idle(plan: SitePlan) -> dict[str, BilledIdle]:
    """By revision; none where the site bills none. Only those whose capacity is proven, and which do not scale."""
    share, prices = Fraction(repr(plan.site.usage.idle_share)), prices_of(plan.site.prices)
    if not share or prices is None:
        return {}
    return {
        revision.name: BilledIdle(
            carried=int(cost.tokens),
            price=int(share * Fraction(repr(cost.cost)) * _PICO / (_DAY_H * _HOUR_S) + Fraction(1, 2)),
            callers=callers,
        )
        for model in plan.models.values()
        for revision in model.revisions.values()
        if revision.server.scaling is None
        if (cost := _of(model.name, [revision.proof], prices, _DAY_H)).tokens >= 1
        if (callers := _callers(plan, model, revision.name))
    }


def dedicated_gpus(plan: SitePlan) -> dict[str, DedicatedGpus]:
    """Replicas that some tenants have for themselves, by revision; not those that scale, whose number no day has."""
    return {
        revision.name: DedicatedGpus(
            model=model.name,
            gpus=revision.proof.case.gpus * Fraction(repr(revision.proof.order.hardware.share)),
            tenants=callers,
        )
        for model in plan.models.values()
        for revision in {own.name: own for own in model.dedicated.values()}.values()
        if revision.server.scaling is None
        if (callers := _callers(plan, model, revision.name))
    }


def _callers(plan: SitePlan, model: ModelPlan, revision: str) -> tuple[str, ...]:
    return tuple(
        name
        for name, tenant in sorted(plan.site.tenants.items())
        if model.name in tenant.models and revision in _used(model, name)
    )


def _used(model: ModelPlan, tenant: str) -> set[str]:
    """The revisions that a tenant is answered by while all run: of a canary the one that it is pinned to, and never
    the shared ones of a tenant with its own."""
    if own := model.dedicated.get(tenant):
        return {own.name}
    canary, spec = model.canary, model.stable.spec.canary
    if canary is None or spec is None:
        return {model.name}
    pinned = spec.pinned.get(tenant, "" if spec.percent else "stable")
    return {"stable": {model.name}, "canary": {canary.name}}.get(pinned, {model.name, canary.name})


def _of(model: str, proofs: Sequence[Proof], prices: Prices, hours: float) -> GpuCost:
    carried, spans = 0.0, list[Span]()
    for proof in proofs:
        if capacity := proof.serving.get("capacity"):
            tokens = request_tokens(proof) * hours * _HOUR_S
            carried += capacity.value * tokens
            spans += [capacity.span.mapped(partial(mul, tokens))] if capacity.span else []
    return GpuCost(
        model=model,
        gpus=sum(proof.case.gpus * proof.order.hardware.share for proof in proofs),
        cost=hours * sum(hourly(proof.case, prices) for proof in proofs),
        tokens=carried,
        tokens_span=Span(fast=_sum(end.fast for end in spans), slow=_sum(end.slow for end in spans)),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
