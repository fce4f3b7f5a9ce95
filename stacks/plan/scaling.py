"""Models whose number of replicas follows their load: which numbers the nodes can give them, and what the least carry.

A rack has as many GPUs as it has, so replicas of one model start where those of another went. Schedulers spread pods,
and pods end in any order: what finds room may hang on where the others happen to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from floor.counts import counted, listed
from floor.problems import Problem
from floor.revision_ids import RevisionId
from stacks.plan.placement import Demand, Node, fits
from stacks.plan.placing import crowds, demands_of, nodes_of
from stacks.proof.case import Case
from stacks.proof.figures import shown
from stacks.proof.proof import Proof
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig

Reach = Literal["always", "maybe", "never"]
"""always: in whatever order replicas start and end. maybe: it hangs on that. never: on no placement."""


def at_least(proof: Proof, spec: OrderedModelSpec) -> Proof:
    """The proof of the replicas that there always are."""
    if spec.server.scaling is None:
        return proof
    order = replace(proof.order, replicas=spec.server.least, replicas_key="scaling.least")
    return Proof(Case(order, proof.case.layout, spec.server.least))


def placed(site: SiteConfig, proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> Mapping[str, Proof]:
    """The proofs by name with the replicas that have room at once: the most of every model, else the least of each."""
    nodes = nodes_of(site)
    return proofs if nodes is None or fits(nodes, demands_of(proofs)) else _least(proofs, specs)


def unplaced(
    site: SiteConfig, proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec], *, dead: bool = True
) -> list[Problem]:
    """What finds no room: the least of every model, or the most of one that scales beside the least of the others.

    dead: as `crowds` has it.
    """
    least = _least(proofs, specs)
    problems = [*crowds(site, least, dead=dead)]
    if not problems:
        scaled = [name for name in proofs if specs[name].server.scaling]
        problems = [problem for name in scaled for problem in crowds(site, {**least, name: proofs[name]}, dead=dead)]
    return problems


def _least(proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> dict[str, Proof]:
    return {name: at_least(proof, specs[name]) for name, proof in proofs.items()}


def reach(nodes: Sequence[Node], demands: Sequence[Demand], model: str = "") -> Reach:
    """Whether all of them find room; with `model`, whether its replicas do where those of the others are placed."""
    asked = [demand for demand in demands if demand.replicas and model in ("", demand.model)]
    if all(_finds_room(nodes, demands, demand) for demand in asked):
        return "always"
    return "maybe" if fits(nodes, demands) or not _packs(nodes, demands) else "never"


def _finds_room(nodes: Sequence[Node], demands: Sequence[Demand], last: Demand) -> bool:
    """Whether one replica finds room however all the others are placed.

    A node has none once more than its size less the replica is taken there. Each larger replica can do that to one
    node; smaller ones must come together for it, in steps of their greatest common divisor.
    """
    own = [node.gpus for node in nodes if node.gpu == last.gpu]
    if not own or min(own) < last.gpus:
        return False
    others = [demand for demand in demands if demand.gpu == last.gpu]
    step = math.gcd(*(demand.gpus for demand in others))
    taking = (min(own) - last.gpus) // step * step + step
    blocked, small = 0, 0
    for demand in others:
        count = demand.replicas - (demand.model == last.model)
        if demand.gpus >= taking:
            blocked += count
        else:
            small += count * demand.gpus
    return blocked + small // taking < len(own)


def _packs(nodes: Iterable[Node], demands: Iterable[Demand]) -> bool:
    """Whether placing large ones first finds room where there is any: each size divides the next, and the nodes."""
    by_kind: dict[str, set[int]] = {}
    for kind, size in [*((node.gpu, node.gpus) for node in nodes), *((demand.gpu, demand.gpus) for demand in demands)]:
        by_kind.setdefault(kind, set()).add(size)
    return all(large % small == 0 for sizes in by_kind.values() for small, large in pairwise(sorted(sizes)))


@dataclass(frozen=True, kw_only=True)
class Range:
    """What one model that scales can reach."""

    model: str
    least: int
    most: int
    calm: tuple[int, int]
    """Replicas that it reaches while the others have their least: always, and perhaps."""
    busy: tuple[int, int]
    """The same while the others have their most, as far as that is reached; not below `least`."""


def ranges(nodes: Sequence[Node], proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> list[Range]:
    """Each model that scales, by name."""
    least, most = demands_of(_least(proofs, specs)), demands_of(proofs)
    return [
        Range(
            model=low.model,
            least=low.replicas,
            most=high.replicas,
            calm=_reached(nodes, least, low, high.replicas),
            busy=_reached(nodes, most, low, high.replicas),
        )
        for low, high in zip(least, most, strict=True)
        if low.replicas < high.replicas
    ]


def _reached(nodes: Sequence[Node], others: Sequence[Demand], own: Demand, most: int) -> tuple[int, int]:
    """The largest number up to `most` that is always reached beside the others, and that is perhaps."""
    always = perhaps = own.replicas
    for count in range(own.replicas, most + 1):
        all_of = [replace(demand, replicas=count) if demand.model == own.model else demand for demand in others]
        match reach(nodes, all_of, own.model):
            case "never":
                break
            case "always":
                always = perhaps = count
            case "maybe":
                perhaps = count
    return always, perhaps


def describe_scaling(site: SiteConfig, proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> str:
    """A block with each model that scales; empty without any."""
    low = _least(proofs, specs)
    scaled = [name for name in sorted(proofs) if specs[name].server.scaling]
    if not scaled:
        return ""
    nodes = nodes_of(site)
    spans = {} if nodes is None else {span.model: span for span in ranges(nodes, proofs, specs)}
    lines = ["scaling:"]
    for name in scaled:
        span = f"{low[name].case.replicas} to {proofs[name].case.replicas} replicas"
        lines += (
            [f"  {name}: {span}{_carried(low[name])}"] if low[name].case.replicas else _from_zero(name, proofs[name])
        )
        if name in spans:
            lines.append(f"    {_room(spans[name], alone=len(scaled) == 1)}")
    return "\n".join(lines)


def _carried(low: Proof) -> str:
    load = low.order.load
    start = f"one more serves {low.cold_start['cold_start']} after its GPUs are free"
    if load is None:
        return f"; {start}"
    least = low.ends.slow.capacity_requests_per_s
    rate = f"{shown(least)} of the declared {shown(load.requests_per_s)} requests/s at the slow end of their band"
    count = low.case.replicas
    return f"; {counted(count, 'replica')} {'carries' if count == 1 else 'carry'} {rate}, {start}"


def _from_zero(name: str, proof: Proof) -> list[str]:
    """What zero means for clients."""
    start = f"{proof.cold_start['cold_start']} after its GPUs are free"
    return [
        f"  {name}: 0 to {proof.case.replicas} replicas; the first serves {start}, and half a minute for noticing",
        "    until then each request gets 503 model_starting, and none is held",
    ]


def _room(span: Range, *, alone: bool) -> str:
    if span.busy[0] == span.most:
        return "there is room for all of them, in whatever order replicas start and end"
    if alone:
        return f"there is room for {_counts(span.calm)}"
    if span.calm == span.busy:
        return f"there is room for {_counts(span.calm)}, whatever the other models have"
    return (
        f"there is room for {_counts(span.calm)} while other models have their least, and for {_counts(span.busy)} "
        "while they have their most"
    )


def _counts(reached: tuple[int, int]) -> str:
    always, perhaps = reached
    if always == perhaps:
        return f"{always}"
    return f"{always}, or up to {perhaps} where replicas happen to leave a node free"


def short(site: SiteConfig, proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> Iterator[Problem]:
    """Models that may be down to one replica, or not get those that their load needs while others have their most."""
    for name, spec in specs.items():
        if spec.server.scaling and spec.server.least == 1:
            yield Problem(
                path=("models", name, "server", "scaling", "least"),
                what="a lost node or a drain stops the model while it has 1 replica, until another one has started",
                got="1",
                fix="write 2 if the model has to answer all the time",
            )
    yield from _stopped(site, proofs, specs)
    for span in ranges(nodes_of(site) or [], proofs, specs):
        if span.busy[0] < span.most:
            yield Problem(
                path=("models", span.model, "server", "scaling"),
                what=f"of its {span.most} replicas {span.busy[0]} find room for sure while other models have their "
                "most, and one that restarts may find its GPUs taken",
                fix="add nodes or lower replicas of others for loads that come at the same time; server.priority "
                "decides which model gets the GPUs",
            )


def _stopped(site: SiteConfig, proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> Iterator[Problem]:
    """Models whose replicas others stop that scale and have a higher priority: Kubernetes knows no least of them."""
    nodes, demands = nodes_of(site), demands_of(proofs, specs)
    if nodes is None or fits(nodes, demands):
        return
    scaled = [demand for demand in demands if specs[demand.model].server.scaling]
    for demand in demands:
        alike = (other for other in scaled if other.gpu == demand.gpu)
        above = [other.model for other in alike if other.priority.outranks(demand.priority)]
        if above:
            yield Problem(
                path=("models", RevisionId.of(demand.model).model, "server"),
                what=f"{listed(above)} may stop its replicas while at their most, below what it has otherwise, as they "
                "have a higher priority and all do not fit at once",
                fix="lower their replicas, add nodes, or give it their priority",
            )
