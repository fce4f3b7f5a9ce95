"""Random sites of four nodes whose models scale, have canaries, dedicated replicas and adapters, as previewed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from floor.problems import SiteError
from stacks.facts import versions
from stacks.plan.models import plan_model
from stacks.plan.placement import Demand
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.scaling import at_least, ranges, reach, unplaced
from stacks.plan.site_plan import plan_values
from stacks.proof.proof import Proof
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig
from tests.unit.stacks.site_examples import prod

GPUS = 32
_ADAPTERS = {"repository": "acme/lora", "revision": "a" * 40, "rank": 8, "target_modules": ["q_proj"]}


@dataclass(frozen=True, kw_only=True)
class Combination:
    """Numbers of replicas at one time, and what the preview states of them."""

    what: str
    demands: Sequence[Demand]
    own: str
    """The model whose replicas count; empty for all."""
    placed: bool
    """Whether all of these find a node, in whatever order; else they do not, in any."""


def random_site(chance: Random) -> dict[str, Any]:
    """The annotated site with two or three other models, which take most of what its nodes have, or more."""
    site, left = prod(), GPUS + chance.choice((-12, -6, 0, 4))
    sizes = sorted(chance.sample([8, 4, 2, 1], chance.randint(2, 3)), reverse=True)
    site["models"] = {}
    for size in sizes:
        count = chance.randint(1, max(1, min(12, left // size)))
        left -= count * size
        site["models"][f"m{size}"] = _model(chance, size, count)
    site["tenants"] = {name: {"models": [*site["models"]], "keys": {"laptop": {}}} for name in ("search", "archive")}
    site["callers"] = {"decided_by": "gatekeeper"}
    site["autoscaling"] = {"system": "keda"}
    for key in ("orders", "tiers", "plans", "portal"):
        site.pop(key, None)
    return site


def _model(chance: Random, size: int, count: int) -> dict[str, Any]:
    model: dict[str, Any] = {"catalogue": "qwen3-8b", "server": {"gpus": size, "replicas": count}}
    kind = chance.choice(["scaled", "scaled", "zero", "canary", "dedicated", "fixed"])
    if kind == "zero":
        model["server"]["scaling"] = {"least": 0}
    elif kind != "fixed" and count > 1:
        model["server"]["scaling"] = {"least": chance.randint(1, count - 1)}
    if kind == "canary":
        own = {"replicas": chance.randint(1, 2), "extra_args": ["--seed=7"]}
        model["canary"] = {"percent": 0, "server": own}
    elif kind == "dedicated":
        model["dedicated"] = {"own": {"tenants": ["archive"], "server": {"replicas": chance.randint(1, 2)}}}
    if chance.random() < 0.3:
        model["adapters"] = {f"task-{size}": {**_ADAPTERS, "revision": f"{size:040x}"}}
    return model


def combinations(values: dict[str, Any], chance: Random) -> Iterator[Combination]:
    """Those of a site that a preview takes or refuses, and that it speaks of for sure."""
    try:
        plan = plan_values(values, "site.yaml")
    except SiteError as error:
        assert all("find no room" in problem.what for problem in error.problems), str(error)
        yield from _refused(values)
        return
    nodes = nodes_of(plan.site) or []
    low = demands_of({name: at_least(proof, plan.specs[name]) for name, proof in plan.proofs.items()})
    high = demands_of(plan.proofs)
    if any(demand.replicas for demand in low) and (answer := reach(nodes, low)) != "maybe":
        yield Combination(what="the least of all", demands=low, own="", placed=answer == "always")
    spans = ranges(nodes, plan.proofs, plan.specs)
    for span in chance.sample(spans, min(1, len(spans))):
        for what, others, (always, perhaps) in (("least", low, span.calm), ("most", high, span.busy)):
            own = {count: _with(others, span.model, count) for count in (always, perhaps + 1)}
            if always and reach(nodes, own[always], span.model) == "always":
                what_ = f"{always} of {span.model} beside the {what} of others"
                yield Combination(what=what_, demands=own[always], own=span.model, placed=True)
            if perhaps < span.most and reach(nodes, own[perhaps + 1], span.model) == "never":
                what_ = f"{perhaps + 1} of {span.model} beside the {what} of others"
                yield Combination(what=what_, demands=own[perhaps + 1], own="", placed=False)


def _with(demands: Sequence[Demand], model: str, count: int) -> list[Demand]:
    return [replace(demand, replicas=count) if demand.model == model else demand for demand in demands]


def _refused(values: dict[str, Any]) -> Iterator[Combination]:
    site = SiteConfig.model_validate(values)
    plans = [plan_model(site, name, versions.load().images) for name in sorted(site.models)]
    revisions = [revision for plan in plans for revision in plan.revisions.values()]
    proofs: Mapping[str, Proof] = {revision.name: revision.proof for revision in revisions}
    specs: Mapping[str, OrderedModelSpec] = {revision.name: revision.spec for revision in revisions}
    assert [*unplaced(site, proofs, specs)]
    least = {name: at_least(proof, specs[name]) for name, proof in proofs.items()}
    scaled = [{**least, name: proof} for name, proof in proofs.items() if specs[name].server.scaling]
    for counts in (least, *scaled):
        if reach(nodes_of(site) or [], demands_of(counts)) == "never":
            yield Combination(what="what is refused", demands=demands_of(counts), own="", placed=False)
            return
