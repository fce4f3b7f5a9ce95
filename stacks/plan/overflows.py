"""What overflows of models have beside their targets' own load, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from floor.counts import counted, listed
from floor.problems import Problem
from stacks.plan.models import ModelPlan
from stacks.plan.scaling import at_least
from stacks.proof.case import Case
from stacks.proof.figures import shown
from stacks.proof.proof import Proof
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig


def describe_overflows(site: SiteConfig, models: Mapping[str, ModelPlan]) -> str:
    """A block with each model that has an overflow; empty without any."""
    lines = []
    for name, to in site.overflows.items():
        target = models[to].stable
        accepting = [tenant for tenant, spec in site.tenants.items() if _accepts(site, tenant, name, to)]
        lines.append(
            f"  {name}: while it is full or away, requests of {listed(accepting) or 'no tenant'} go to {to}, of up to "
            f"{target.server.max_model_len:,} tokens with their answers"
        )
        least = at_least(target.proof, target.spec)
        lines.append(f"    {_carried(to + _with_least(target.spec, least), models[name].stable.proof, least)}")
    return "\n".join(["overflow:", *lines]) if lines else ""


def carrying_nothing(site: SiteConfig, models: Mapping[str, ModelPlan]) -> Iterator[Problem]:
    """Models whose overflow meets another one that its own load fills, at the slow end of the proof."""
    for name, to in site.overflows.items():
        target = models[to].stable
        least = at_least(target.proof, target.spec)
        if spare_requests_per_s(models[name].stable.proof, least) == 0:
            yield Problem(
                path=("models", name, "overflow", "to"),
                what=f"has no room beside its own load{_with_least(target.spec, least)}, so little overflows at peak",
                got=to,
                fix=f"add replicas to {to}, or name a model with room",
            )


def _with_least(spec: OrderedModelSpec, proof: Proof) -> str:
    return f" with its least {counted(proof.case.replicas, 'replica')}" if spec.server.scaling else ""


def _accepts(site: SiteConfig, tenant: str, name: str, to: str) -> bool:
    spec = site.tenants[tenant]
    dedicated = any(tenant in group.tenants for group in site.models[name].dedicated.values())
    return spec.overflow == "accept" and name in spec.models and to in spec.models and not dedicated


def spare_requests_per_s(proof: Proof, target: Proof) -> float | None:
    """Requests per second of the kind of the one that the other carries beside its own load, at the slow end.

    None where neither declares a load. Without a load of the first, of the target's own kind.
    """
    load, own = proof.order.load, target.order.load
    if load is None and own is None:
        return None
    other = target.order if load is None else replace(target.order, load=load)
    alone = Proof(Case(other, target.case.layout, target.case.replicas))
    if alone.case.fit_problems:
        return 0.0
    most = target.ends.slow.capacity_requests_per_s if own else 0.0
    free = max(0.0, 1 - own.requests_per_s / most) if own and most else float(own is None)
    return free * alone.ends.slow.capacity_requests_per_s


def _carried(to: str, proof: Proof, target: Proof) -> str:
    load, own = proof.order.load, target.order.load
    spare = spare_requests_per_s(proof, target)
    if spare is None:
        return f"what {to} carries is not known, as neither of them declares a load"
    beside = f"beside its own {shown(own.requests_per_s)}" if own else "if it has no load of its own"
    if load is None:
        carried = f"{shown(spare)} requests/s of its own kind"
    else:
        carried = f"{shown(min(spare, load.requests_per_s))} of the {shown(load.requests_per_s)} requests/s"
    return f"{to} carries {carried} {beside}, at the slow end of its band  [estimated]"
