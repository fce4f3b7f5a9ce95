"""Whether all models of a site fit on its GPUs together, and what a lost node or a rollout leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine with GPUs of one kind."""

    name: str
    gpu: str
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Replicas of one model; a canary is a demand of its own."""

    model: str
    gpu: str
    gpus: int
    """Of one replica. More than a node has are whole nodes."""
    replicas: int


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One replica and the nodes that it is on."""

    model: str
    number: int
    nodes: tuple[str, ...]
    gpus_per_node: int


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What the failure of one node does."""

    node: str
    verdict: Literal["spare", "recovers", "degraded", "down"]
    """spare: no replica was on it. recovers: its replicas find room elsewhere. degraded: some do not, but every model
    is still served. down: a model is served by nobody until the node is back."""
    models: tuple[str, ...]
    """Models that have fewer replicas afterwards, sorted."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where everything is."""

    replicas: tuple[Replica, ...]
    free: dict[str, int]
    """GPUs that are free, by node."""
    unplaced: tuple[Demand, ...]
    """What found no room, with the replicas that are missing."""
    missing_nodes: dict[str, int]
    """Nodes by kind of GPU that would make room for all; a kind that no number of nodes helps is not in it."""
    losses: tuple[Loss, ...]
    """One for each node, in the order of the nodes."""
    surge: dict[str, bool]
    """By model, whether one replica more fits beside all others, so that a rollout can start it first."""

    @property
    def fits(self) -> bool:
        return not self.unplaced

    @property
    def survives_a_node(self) -> bool:
        """Whether every model is served after the failure of any one node."""
        return all(loss.verdict != "down" for loss in self.losses)


def place(nodes: Sequence[Node], demands: Sequence[Demand]) -> Placement:
    """Place the demands: large replicas first, replicas of a model apart from each other, small ones into gaps.

    Deterministic: equal input gives equal output, in whatever order nodes and demands come. Raises ValueError for names
    that are given twice.
    """
    for names in ([node.name for node in nodes], [demand.model for demand in demands]):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"given twice: {', '.join(sorted(twice))}")
    replicas, free, unplaced = _fill(nodes, demands)
    surge = {
        demand.model: not unplaced and _spot(nodes, free, demand, _on_nodes(replicas, demand.model)) is not None
        for demand in sorted(demands, key=lambda each: each.model)
    }
    return Placement(
        replicas=tuple(replicas),
        free={node.name: free[node.name] for node in nodes},
        unplaced=tuple(unplaced),
        missing_nodes=_missing(nodes, demands, unplaced),
        losses=tuple(_loss(node, nodes, demands, replicas, free) for node in nodes),
        surge=surge,
    )


def _fill(nodes: Sequence[Node], demands: Sequence[Demand]) -> tuple[list[Replica], dict[str, int], list[Demand]]:
    free = {node.name: node.gpus for node in nodes}
    placed: list[Replica] = []
    unplaced: list[Demand] = []
    for demand in sorted(demands, key=lambda each: (-each.gpus, each.model)):
        taken: Counter[str] = Counter()
        for number in range(demand.replicas):
            spot = _spot(nodes, free, demand, taken)
            if spot is None:
                missing = demand.replicas - number
                unplaced.append(Demand(model=demand.model, gpu=demand.gpu, gpus=demand.gpus, replicas=missing))
                break
            share = demand.gpus // len(spot)
            for name in spot:
                free[name] -= share
                taken[name] += 1
            placed.append(Replica(model=demand.model, number=number, nodes=spot, gpus_per_node=share))
    return placed, free, unplaced


def _spot(nodes: Iterable[Node], free: dict[str, int], demand: Demand, taken: Counter[str]) -> tuple[str, ...] | None:
    """Nodes for one replica: where fewest of its like are, and of those where the least stays free."""
    fitting = [node for node in nodes if node.gpu == demand.gpu]
    single = [node for node in fitting if free.get(node.name, 0) >= demand.gpus]
    if single:
        best = min(single, key=lambda node: (taken[node.name], free[node.name] - demand.gpus, node.name))
        return (best.name,)
    size = max((node.gpus for node in fitting), default=0)
    if not size or demand.gpus <= size or demand.gpus % size:
        return None
    whole = sorted(node.name for node in fitting if node.gpus == size and free.get(node.name, 0) == size)
    count = demand.gpus // size
    return tuple(whole[:count]) if len(whole) >= count else None


def _on_nodes(replicas: Iterable[Replica], model: str) -> Counter[str]:
    return Counter(name for replica in replicas if replica.model == model for name in replica.nodes)


def _loss(
    lost: Node, nodes: Sequence[Node], demands: Sequence[Demand], replicas: Sequence[Replica], free: dict[str, int]
) -> Loss:
    gone = [replica for replica in replicas if lost.name in replica.nodes]
    if not gone:
        return Loss(node=lost.name, verdict="spare", models=())
    rest = {node.name: free[node.name] for node in nodes if node.name != lost.name}
    for replica in gone:
        for name in replica.nodes:
            if name in rest:
                rest[name] += replica.gpus_per_node
    others = [node for node in nodes if node.name != lost.name]
    kinds = {demand.model: demand for demand in demands}
    serving = Counter(replica.model for replica in replicas if replica not in gone)
    fewer: set[str] = set()
    for replica in sorted(gone, key=lambda each: (-kinds[each.model].gpus, each.model)):
        demand = kinds[replica.model]
        spot = _spot(others, rest, demand, Counter())
        if spot is None:
            fewer.add(replica.model)
            continue
        serving[replica.model] += 1
        for name in spot:
            rest[name] -= demand.gpus // len(spot)
    verdict: Literal["recovers", "degraded", "down"] = "recovers"
    if fewer:
        verdict = "down" if any(not serving[model] for model in fewer) else "degraded"
    return Loss(node=lost.name, verdict=verdict, models=tuple(sorted(fewer)))


def _missing(nodes: Sequence[Node], demands: Sequence[Demand], unplaced: Iterable[Demand]) -> dict[str, int]:
    """Nodes like the largest of each kind that is short, added until all fits; not where no number helps."""
    found: dict[str, int] = {}
    for gpu in sorted({demand.gpu for demand in unplaced}):
        here = [node for node in nodes if node.gpu == gpu]
        wanted = [demand for demand in demands if demand.gpu == gpu]
        size = max((node.gpus for node in here), default=0)
        if not size or any(demand.gpus > size and demand.gpus % size for demand in wanted):
            continue
        most = sum(demand.replicas * -(-demand.gpus // size) for demand in wanted)
        for count in range(1, most + 1):
            here.append(Node(name=f"+{count}", gpu=gpu, gpus=size))
            if not _fill(here, wanted)[2]:
                found[gpu] = count
                break
    return found


def complaint(placement: Placement, nodes: Sequence[Node]) -> str:
    """Why not everything fits, and the fix; nothing where it does."""
    if placement.fits:
        return ""
    lines = []
    for demand in placement.unplaced:
        here = [placement.free[node.name] for node in nodes if node.gpu == demand.gpu]
        more = placement.missing_nodes.get(demand.gpu)
        fix = f"add {more} node(s) with {demand.gpu}" if more else f"take nodes that hold {demand.gpus} {demand.gpu}"
        lines += [
            f"{demand.model}: {demand.replicas} replica(s) of {demand.gpus} GPUs find no room; {demand.gpu} has "
            f"{sum(here)} free GPUs, at most {max(here, default=0)} on one node",
            f"  fix: {fix}, or fewer replicas",
        ]
    return "\n".join(lines)
