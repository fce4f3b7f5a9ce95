"""What the watcher does about what it saw: pure functions, so that a table of cases shows every rule.

Draining a node that is well costs more than a fault that waits for a person. So two sources must agree, DCGM and the
cluster, for a while; one node is out at a time, one an hour; and only a node without which the rest serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.watcher.settings import NodeOffer, WatcherSettings
from services.watcher.variables import AGREE_S, APART_S, MISSING


@dataclass(frozen=True, kw_only=True)
class ReplicaSeen:
    """A replica of a model."""

    name: str
    ready: bool
    restarted: bool = False
    ending: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadSeen:
    """The load test of a node."""

    passed: bool = False
    text: str = ""
    """What its GPUs reached, or what is wrong with them; empty while it runs."""


@dataclass(frozen=True, kw_only=True)
class NodeSeen:
    """A node, as the API server has it."""

    ready: bool = True
    cordoned: bool = False
    allocatable: Mapping[str, int]
    """By resource."""
    taint: str = ""
    """Value of the watcher's taint: the code of the fault for which it is out."""
    marked: Sequence[str] = ()
    """Codes of all faults that were reported while it was out; they stay where an operator removes the taint."""
    since: float = 0.0
    """When it was last taken out, in whole seconds since 1970; 0 for never."""
    suspect: str = ""
    checking: bool = False
    """Whether it has the taint of a new node."""
    checked: bool = False
    replicas: Sequence[ReplicaSeen] = ()
    validated: bool = True
    load_test: str = ""
    """Name of the one that is to run on it."""
    load: LoadSeen = LoadSeen()


@dataclass(frozen=True, kw_only=True)
class LastDrain:
    """Of any node, as the Lease has it."""

    node: str
    at: float
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Both sources at one moment."""

    nodes: Mapping[str, NodeSeen]
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Node -> codes of its GPUs' faults, the worst first."""
    measured: Mapping[str, int] = field(default_factory=dict)
    """Node -> GPUs that DCGM reports."""
    joining: Mapping[str, int] = field(default_factory=dict)
    """Node -> GPUs that have not joined the fabric."""
    last: LastDrain | None = None


Held = Literal["another node is out", "the rest cannot carry it", "one node an hour"]
"""Why a node stays in service that both sources report."""


@dataclass(frozen=True, kw_only=True)
class Drain:
    """Taint a node and mark it, once the Lease has it as the last one."""

    node: str
    codes: Sequence[str]
    """The worst first."""
    why: str
    """What the cluster shows of it."""


@dataclass(frozen=True, kw_only=True)
class Evict:
    """Ask for the eviction of these replicas of a node that is out; a disruption budget may refuse one for now."""

    node: str
    replicas: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """Mark a node, with an Event, that stays in service; without a text, take the mark off."""

    node: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Codes that an operator acknowledges with the taint: those of a node that is out; afterwards, of these the ones
    that are still there. One that was gone counts again."""

    node: str
    codes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Taint a new node until its GPUs are checked."""

    node: str


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """Have the GPUs of a new node work, or end that where an operator has admitted it."""

    node: str
    name: str
    """Of the load test; empty for none."""


@dataclass(frozen=True, kw_only=True)
class Admit:
    """Let a new node take replicas."""

    node: str
    reached: str = ""
    """In its load test."""


Act = Drain | Evict | Suspect | Mark | Inspect | Exercise | Admit


def _reported(name: str, seen: Seen, settings: WatcherSettings) -> list[str]:
    """Codes of all faults by DCGM. A GPU that it does not know any more is one; of a node without any it is silent."""
    missing = 0 < seen.measured.get(name, 0) < settings.nodes[name].gpus
    return [*seen.faults.get(name, ()), *([MISSING] if missing else [])]


def faults_of(name: str, seen: Seen, settings: WatcherSettings) -> list[str]:
    """The same without those that an operator has acknowledged."""
    node = seen.nodes.get(name)
    return [code for code in _reported(name, seen, settings) if node is None or code not in node.marked]


def in_cluster(node: NodeSeen, offer: NodeOffer) -> str:
    """What the cluster has against a node's GPUs; empty for nothing."""
    if short := _short(node, offer):
        return short
    broken = [replica.name for replica in node.replicas if replica.restarted and not replica.ready]
    return f"{broken[0]} was restarted and is not ready" if broken else ""


def _short(node: NodeSeen, offer: NodeOffer) -> str:
    offered = node.allocatable.get(offer.resource, 0)
    return f"it offers {offered} of {offer.count} {offer.resource}" if offered < offer.count else ""


def agreeing(seen: Seen, settings: WatcherSettings) -> dict[str, str]:
    """Nodes that are in service and that both sources report: what the cluster has against each.

    Of a node that is not ready nothing is known, and one that is cordoned is an operator's.
    """
    against = {}
    for name, offer in settings.nodes.items():
        node = seen.nodes.get(name)
        if node is None or not node.ready or node.cordoned or node.taint or not faults_of(name, seen, settings):
            continue
        if why := in_cluster(node, offer):
            against[name] = why
    return against


def decide(seen: Seen, settings: WatcherSettings, agreed: Mapping[str, float], now: float) -> list[Act]:
    """What to do. agreed: for how many seconds both sources have reported each node; now: seconds since 1970."""
    against = agreeing(seen, settings)
    ripe = sorted(name for name in against if agreed.get(name, 0.0) >= AGREE_S)
    chosen = next((name for name in ripe if settings.drains and not held(name, seen, settings, now)), "")
    acts: list[Act] = []
    for name, node in sorted(seen.nodes.items()):
        if name not in settings.nodes:
            continue
        if name == chosen:
            acts.append(Drain(node=name, codes=faults_of(name, seen, settings), why=against[name]))
        elif node.taint:
            acts += _marked(name, seen, settings)
            staying = [replica for replica in node.replicas if not replica.ending]
            # Those that serve nothing first: a budget counts the ready ones.
            staying.sort(key=lambda replica: (replica.ready, replica.name))
            if settings.drains and staying:
                acts.append(Evict(node=name, replicas=[replica.name for replica in staying]))
        else:
            acts += _marks(name, seen, settings, against, now)
        if settings.checks:
            acts += _new(name, seen, settings)
    return acts


def held(name: str, seen: Seen, settings: WatcherSettings, now: float) -> Held | None:
    """Why this node stays in service although both sources report it; None where nothing keeps it."""
    if any(name != other and _is_out(seen.nodes.get(other), offer) for other, offer in settings.nodes.items()):
        return "another node is out"
    if name not in settings.may_lose:
        return "the rest cannot carry it"
    if (last := seen.last) and now - last.at < APART_S:
        # A drain that ended between the Lease and the taint goes on.
        has_ended = last.node == name and seen.nodes[name].since < int(last.at)
        return None if has_ended else "one node an hour"
    return None


def _is_out(node: NodeSeen | None, offer: NodeOffer) -> bool:
    """Whether it takes no replica, or not all that the proof counts on, for whatever reason."""
    if node is None or not node.ready or node.cordoned or node.taint or node.checking:
        return True
    return bool(in_cluster(node, offer))


def _marks(
    name: str, seen: Seen, settings: WatcherSettings, against: Mapping[str, str], now: float
) -> Iterator[Suspect | Mark]:
    node, codes = seen.nodes[name], faults_of(name, seen, settings)
    yield from _marked(name, seen, settings)
    text = ""
    if name in against:
        why = held(name, seen, settings, now) if settings.drains else None
        text = f"{codes[0]}, and {against[name]}" + (f"; not drained: {why}" if why else "")
    elif codes:
        text = f"{codes[0]}; the cluster has nothing against it"
    elif node.ready and (short := _short(node, settings.nodes[name])):
        text = f"{short}; DCGM reports no fault"
    if text != node.suspect:
        yield Suspect(node=name, text=text)


def _marked(name: str, seen: Seen, settings: WatcherSettings) -> Iterator[Mark]:
    node, reported = seen.nodes[name], _reported(name, seen, settings)
    if node.taint:
        codes = [*node.marked, *(code for code in reported if code not in node.marked)]
    else:
        # Without DCGM's word on the node, its silence is no end of a fault.
        codes = [code for code in node.marked if code in reported or name not in seen.measured]
    if codes != [*node.marked]:
        yield Mark(node=name, codes=codes)


def unfit(name: str, seen: Seen, settings: WatcherSettings) -> str:
    """Why a new node takes no replica yet; empty once it may."""
    if why := _unwell(name, seen, settings):
        return why
    node, test = seen.nodes[name], settings.nodes[name].load_test
    # One that serves meanwhile works already, and its test would wait for the GPUs for good.
    if not test or any(replica.ready for replica in node.replicas) or (node.load.passed and node.load_test == test):
        return ""
    return f"its load test fails: {node.load.text}" if node.load.text and not node.load.passed else "its load test runs"


def _unwell(name: str, seen: Seen, settings: WatcherSettings) -> str:
    """What speaks against a new node before, and while, its GPUs work."""
    node, offer = seen.nodes[name], settings.nodes[name]
    if not node.ready:
        return "it is not ready"
    if short := _short(node, offer):
        return short
    if not node.validated:
        return "the GPU operator's validator is not ready there"
    if (measured := seen.measured.get(name, 0)) < offer.gpus:
        return f"DCGM reports {measured} of {offer.gpus} GPUs"
    if joining := seen.joining.get(name, 0):
        return f"{joining} GPUs have not joined the fabric"
    return ", ".join(_reported(name, seen, settings))


def _new(name: str, seen: Seen, settings: WatcherSettings) -> Iterator[Inspect | Exercise | Admit]:
    node, test = seen.nodes[name], settings.nodes[name].load_test
    if node.checking and not unfit(name, seen, settings):
        yield Admit(node=name, reached=node.load.text if test else "")
    elif node.checking and node.load_test != test and not _unwell(name, seen, settings):
        yield Exercise(node=name, name=test)
    elif node.checked and not node.checking and node.load_test:
        yield Exercise(node=name, name="")
    elif not node.checking and not node.checked:
        # One that serves already is not new: to taint all nodes of a running site would leave no room on any.
        serves = any(replica.ready for replica in node.replicas)
        yield Admit(node=name) if serves else Inspect(node=name)
