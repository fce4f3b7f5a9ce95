"""Whether all models of a site fit on its GPUs together, and what a lost node or a rollout leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from components.specs.model_server import PodPriority

_ALIKE = PodPriority(value=0, preempts=False)
# Above this many nodes, no search for the missing number: it follows from the count of GPUs alone.
_MOST_MISSING = 256


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine with GPUs of one kind."""

    name: str
    gpu: str
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Replicas of one revision; a canary is a demand of its own."""

    model: str
    """The revision's name, which the stable one has from its model."""
    gpu: str
    gpus: int
    """Of one replica. More than a node has are whole nodes."""
    replicas: int
    priority: PodPriority = _ALIKE


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
    is still served. down: no replica serves the model until the node is back."""
    missing: tuple[tuple[str, int], ...]
    """Models that have fewer replicas afterwards, sorted, and how many fewer."""
    moved: tuple[tuple[str, int], ...] = ()
    """Models of other nodes whose replicas made room for those of a higher priority, sorted, and how many of each; they
    start elsewhere unless they are missing too."""
    out: tuple[tuple[str, int], ...] = ()
    """Models of which replicas stop, with the node or to make room, sorted, and how many; until those that are not
    missing have started elsewhere, the others serve without them."""

    @property
    def models(self) -> tuple[str, ...]:
        """Models that have fewer replicas afterwards, sorted."""
        return tuple(model for model, _ in self.missing)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where everything is."""

    replicas: tuple[Replica, ...]
    free: dict[str, int]
    """GPUs that are free, by node."""
    unplaced: tuple[Demand, ...]
    """What found no room, with the replicas that are missing."""
    missing_nodes: dict[str, int]
    """Nodes by kind of GPU that would make room for all; a kind that no number of nodes helps is not in it. Beyond 256
    no fewer than these."""
    losses: tuple[Loss, ...]
    """One for each node, in the order of the nodes."""
    surge: dict[str, bool]
    """By model, whether one more replica fits together with all others, so that a rollout can start it first."""
    crowded: tuple[str, ...]
    """Models that find no room where the small ones are placed first and spread, as a scheduler may that does not pack;
    empty where that does no harm."""
    uncrowded_nodes: dict[str, int]
    """Nodes more by kind of GPU with which it does none."""
    whole: tuple[str, ...]
    """Nodes of which one replica takes every GPU, by name; smaller replicas are to avoid them."""

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
    crowded = [] if unplaced else _fill(nodes, demands, avoided=_whole(nodes, replicas))[2]
    surge = {
        demand.model: not unplaced and _spot(nodes, free, demand, _on_nodes(replicas, demand.model)) is not None
        for demand in sorted(demands, key=lambda demand: demand.model)
    }
    return Placement(
        replicas=tuple(replicas),
        free={node.name: free[node.name] for node in nodes},
        unplaced=tuple(unplaced),
        missing_nodes=_missing(nodes, demands, unplaced),
        crowded=tuple(sorted(demand.model for demand in crowded)),
        uncrowded_nodes=_missing(nodes, demands, crowded, packed=False),
        whole=tuple(sorted(_whole(nodes, replicas))),
        losses=tuple(_loss(node, nodes, demands, replicas, free) for node in nodes),
        surge=surge,
    )


def nodes_taken(demand: Demand, size: int) -> str:
    """Of how many nodes of that size one replica takes its GPUs, in words."""
    return f"{demand.gpus // size} whole nodes" if demand.gpus > size else "one node"


def fits(nodes: Sequence[Node], demands: Sequence[Demand]) -> bool:
    """Whether `place` finds room for all; much cheaper than the whole placement."""
    return not _fill(nodes, demands)[2]


def whole_nodes(nodes: Sequence[Node], demands: Sequence[Demand]) -> frozenset[str]:
    """Nodes of which `place` gives one replica every GPU, by name."""
    return _whole(nodes, _fill(nodes, demands)[0])


def _whole(nodes: Iterable[Node], replicas: Iterable[Replica]) -> frozenset[str]:
    gpus = {node.name: node.gpus for node in nodes}
    return frozenset(name for replica in replicas for name in replica.nodes if replica.gpus_per_node == gpus[name])


def _fill(
    nodes: Sequence[Node], demands: Sequence[Demand], *, avoided: frozenset[str] | None = None
) -> tuple[list[Replica], dict[str, int], list[Demand]]:
    """Replicas, free GPUs by node, and what found no room: large ones first, and small ones into gaps.

    avoided: nodes that replicas smaller than them take last. Given, small ones come first and spread instead.
    """
    packed = avoided is None
    free = {node.name: node.gpus for node in nodes}
    placed: list[Replica] = []
    unplaced: list[Demand] = []
    for demand in sorted(demands, key=lambda demand: (-demand.gpus if packed else demand.gpus, demand.model)):
        taken: Counter[str] = Counter()
        for number in range(demand.replicas):
            spot = _spot(nodes, free, demand, taken, avoided=avoided)
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


def _spot(
    nodes: Iterable[Node],
    free: dict[str, int],
    demand: Demand,
    taken: Counter[str],
    *,
    avoided: frozenset[str] | None = None,
) -> tuple[str, ...] | None:
    """Nodes for one replica: where fewest of its like are, and of those where the least stays free.

    avoided: nodes that it takes last unless it fills them. Given, it goes where most stays free, as a scheduler has it.
    """
    sign = 1 if avoided is None else -1
    fitting = [node for node in nodes if node.gpu == demand.gpu]
    single = [node for node in fitting if free.get(node.name, 0) >= demand.gpus]
    if single:
        last = {node.name for node in single if node.name in (avoided or ()) and demand.gpus < node.gpus}
        best = min(single, key=lambda node: (node.name in last, taken[node.name], sign * free[node.name], node.name))
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
        return Loss(node=lost.name, verdict="spare", missing=())
    rest = {node.name: free[node.name] for node in nodes if node.name != lost.name}
    for replica in gone:
        for name in replica.nodes:
            if name in rest:
                rest[name] += replica.gpus_per_node
    others = [node for node in nodes if node.name != lost.name]
    kinds = {demand.model: demand for demand in demands}
    running = [replica for replica in replicas if lost.name not in replica.nodes]
    serving = Counter(replica.model for replica in running)
    fewer: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    # What makes room comes after what takes it: priorities only fall, so this ends.
    waiting = sorted(gone, key=lambda replica: _first_placed(kinds[replica.model]))
    while waiting:
        replica = waiting.pop(0)
        demand = kinds[replica.model]
        spot = _spot(others, rest, demand, Counter())
        if spot is None:
            stopped = _making_room(others, rest, demand, running, kinds)
            if stopped is None:
                fewer[replica.model] += 1
                continue
            spot = stopped[0].nodes
            for other in stopped:
                running.remove(other)
                serving[other.model] -= 1
                moved[other.model] += 1
                rest[spot[0]] += other.gpus_per_node
            waiting = sorted([*waiting, *stopped], key=lambda replica: _first_placed(kinds[replica.model]))
        serving[replica.model] += 1
        for name in spot:
            rest[name] -= demand.gpus // len(spot)
    verdict: Literal["recovers", "degraded", "down"] = "recovers"
    if fewer:
        verdict = "down" if any(not serving[model] for model in fewer) else "degraded"
    out = moved + Counter(replica.model for replica in gone)
    return Loss(
        node=lost.name,
        verdict=verdict,
        missing=tuple(sorted(fewer.items())),
        moved=tuple(sorted(moved.items())),
        out=tuple(sorted(out.items())),
    )


def _first_placed(demand: Demand) -> tuple[int, int, str]:
    """As a scheduler takes what waits: by priority; then, as the plan does, large ones first."""
    return -demand.priority.value, -demand.gpus, demand.model


def _making_room(
    nodes: Iterable[Node],
    free: dict[str, int],
    demand: Demand,
    running: Iterable[Replica],
    kinds: Mapping[str, Demand],
) -> list[Replica] | None:
    """Replicas of one node that a scheduler stops for this one: as few as do, on the node that loses fewest GPUs."""
    outranked = {model for model, kind in kinds.items() if demand.priority.outranks(kind.priority)}
    if not outranked:
        return None
    lower: dict[str, list[Replica]] = {}
    for replica in running:
        if replica.model in outranked and len(replica.nodes) == 1:
            lower.setdefault(replica.nodes[0], []).append(replica)
    ways = []
    for node in nodes:
        own = lower.get(node.name, ())
        stopped: list[Replica] = []
        room = free[node.name]
        for replica in sorted(own, key=lambda replica: (kinds[replica.model].priority.value, replica.model)):
            if room < demand.gpus:
                stopped.append(replica)
                room += replica.gpus_per_node
        if node.gpu == demand.gpu and stopped and room >= demand.gpus:
            ways.append((sum(replica.gpus_per_node for replica in stopped), node.name, stopped))
    return min(ways, key=lambda way: way[:2])[2] if ways else None


def _lacks(nodes: Sequence[Node], demands: Sequence[Demand], *, packed: bool) -> bool:
    """Whether a replica finds no room: packed as `place` does it, or as a scheduler may that does not pack."""
    return bool(_fill(nodes, demands, avoided=None if packed else whole_nodes(nodes, demands))[2])


def _missing(
    nodes: Sequence[Node], demands: Sequence[Demand], unplaced: Iterable[Demand], *, packed: bool = True
) -> dict[str, int]:
    """Nodes like the largest of each kind that is short, added until all fits; not where no number helps."""
    missing: dict[str, int] = {}
    for gpu in sorted({demand.gpu for demand in unplaced}):
        here = [node for node in nodes if node.gpu == gpu]
        wanted = [demand for demand in demands if demand.gpu == gpu]
        size = max((node.gpus for node in here), default=0)
        if not size or any(demand.gpus > size and demand.gpus % size for demand in wanted):
            continue
        lacking = sum(demand.gpus * demand.replicas for demand in wanted) - sum(node.gpus for node in here)
        low = max(1, -(-lacking // size)) - 1
        high = min(sum(demand.replicas * -(-demand.gpus // size) for demand in wanted), _MOST_MISSING)
        more = [Node(name=f"+{number}", gpu=gpu, gpus=size) for number in range(high)]
        if low >= high or _lacks([*here, *more], wanted, packed=packed):
            missing[gpu] = max(low + 1, high)
            continue
        while high - low > 1:
            middle = (low + high) // 2
            lacks = _lacks([*here, *more[:middle]], wanted, packed=packed)
            low, high = (middle, high) if lacks else (low, middle)
        missing[gpu] = high
    return missing
