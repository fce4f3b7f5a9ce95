"""Whether machines without GPUs hold what runs there: proxies, pickers and controllers, also with one machine away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from components.specs.gateway import ENVOY_REQUESTS
from floor.counts import counted
from floor.problems import Path, Problem
from stacks.plan.machine_documents import merged_keys
from stacks.proof.figures import shown
from stacks.site.checks.forms import cores_of, memory_of
from stacks.site.machine import MachineKeys
from stacks.site.model import SiteConfig

_ROLE: Path = ("cluster", "machines", "roles", "worker")
_KEYS = ("cores", "memory_gib")
# Of each machine, estimated: its kubelet and system, Cilium, CoreDNS, and controllers, which request little or nothing.
SYSTEM_CORES, SYSTEM_GIB = 2.0, 4.0
_PROXY = "proxy"
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, kw_only=True)
class InfraNode:
    """A machine that takes pods without GPUs, and what it has for them."""

    name: str
    cores: float
    gib: float


@dataclass(frozen=True, kw_only=True)
class InfraPod:
    """What one pod requests."""

    name: str
    cores: float
    gib: float


def pods_of(site: SiteConfig) -> list[InfraPod]:
    """Proxies and pickers, of which a site has as many as it states."""
    proxy = InfraPod(name=_PROXY, cores=proxy_cores(site), gib=(memory_of(ENVOY_REQUESTS["memory"]) or 0.0) / 2**30)
    pods = [proxy] * site.gateway.replicas
    for revision, model in site.revisions:
        pods += [_pod(f"picker of {revision.name}", model.pool.cpu, model.pool.memory)] * model.pool.pickers
    return pods


def proxy_cores(site: SiteConfig) -> float:
    """Cores that one proxy requests."""
    return site.gateway.cores or cores_of(ENVOY_REQUESTS["cpu"]) or 0.0


def _pod(name: str, cpu: str, memory: str) -> InfraPod:
    return InfraPod(name=name, cores=cores_of(cpu) or 0.0, gib=(memory_of(memory) or 0.0) / 2**30)


def takers(site: SiteConfig) -> dict[str, MachineKeys]:
    """Machines that take pods without GPUs, with all keys that hold for each."""
    machines, taking = site.cluster.machines, dict[str, MachineKeys]()
    for name, node in sorted(machines.nodes.items()) if machines else ():
        keys = merged_keys(machines, node) if machines else node
        tainted = any(value.rpartition(":")[2] in _KEEPS_AWAY for value in keys.taints.values())
        takes = node.role == "worker" or (node.role == "controlplane" and node.schedulable)
        if takes and not node.dead and not tainted:
            taking[name] = keys
    return taking


def nodes_for(site: SiteConfig) -> list[InfraNode] | None:
    """The machines that take these pods, less what the system takes; None where not all have their size stated."""
    nodes = list[InfraNode]()
    for name, keys in takers(site).items():
        if keys.cores is None or keys.memory_gib is None:
            return None
        nodes.append(
            InfraNode(name=name, cores=keys.cores - SYSTEM_CORES, gib=keys.memory_gib - SYSTEM_GIB),
        )
    return nodes or None


def left_out(nodes: Sequence[InfraNode], pods: Sequence[InfraPod]) -> list[InfraPod]:
    """Pods without room: large ones first, each on the machine with most memory left, as a scheduler spreads them."""
    free = {node.name: (node.cores, node.gib) for node in nodes}
    out = []
    for pod in sorted(pods, key=lambda pod: (-pod.cores, -pod.gib, pod.name)):
        room = [name for name, (cores, gib) in free.items() if cores >= pod.cores and gib >= pod.gib]
        if not room:
            out.append(pod)
            continue
        there = max(room, key=lambda name: (free[name][1], name))
        free[there] = (free[there][0] - pod.cores, free[there][1] - pod.gib)
    return out


def lost_without_room(nodes: Sequence[InfraNode], pods: Sequence[InfraPod]) -> dict[str, list[InfraPod]]:
    """Pods that find no room while a machine is away, by each machine with which some do not."""
    lost = {node.name: left_out([other for other in nodes if other is not node], pods) for node in nodes}
    return {name: out for name, out in lost.items() if out}


def crowded_infra(site: SiteConfig) -> Iterator[Problem]:
    """Pods that find no room on the machines without GPUs, so that `up` would wait for them until its time is up."""
    nodes, pods = nodes_for(site), pods_of(site)
    if nodes is None or not (out := left_out(nodes, pods)):
        return
    yield _problem(nodes, pods, out, "")


def crowded_without_one(site: SiteConfig) -> Iterator[Problem]:
    """The same while one of these machines is away, as each is for an upgrade."""
    nodes, pods = nodes_for(site), pods_of(site)
    if nodes is None or left_out(nodes, pods) or not (lost := lost_without_room(nodes, pods)):
        return
    name, out = next(iter(lost.items()))
    yield _problem(nodes, pods, out, f"while {name} is away, ")


def _problem(nodes: Sequence[InfraNode], pods: Sequence[InfraPod], out: Sequence[InfraPod], when: str) -> Problem:
    proxies = all(pod.name == _PROXY for pod in out)
    fewer = "gateway.replicas" if proxies else "models.NAME.pool.cpu and memory to what pickers need"
    return Problem(
        path=("gateway", "replicas") if proxies else _ROLE,
        what=f"{when}{_named(out)} find no room: {_total(pods)} are requested, and a pod is on one machine",
        got=_there(nodes),
        fix=f"add machines of role worker, take larger ones, or lower {fewer}",
    )


def describe_infra(site: SiteConfig) -> str:
    """A line about it; nothing where the site lists no machines."""
    if site.cluster.machines is None:
        return ""
    nodes, pods = nodes_for(site), pods_of(site)
    if nodes is None:
        return f"{_total(pods)} for proxies and pickers; {' and '.join(_KEYS)} of the machines without GPUs are not set"
    if left_out(nodes, pods):
        return f"{_total(pods)} DO NOT FIT on {_there(nodes)}"
    away = "also with one away" if not lost_without_room(nodes, pods) else "NOT WITH ONE AWAY"
    return f"{_total(pods)} for proxies and pickers fit on {_there(nodes)}, {away}"


def _named(pods: Sequence[InfraPod]) -> str:
    counts = {pod.name: sum(other.name == pod.name for other in pods) for pod in pods}
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _total(pods: Sequence[InfraPod]) -> str:
    return f"{shown(sum(pod.cores for pod in pods))} cores and {shown(sum(pod.gib for pod in pods))} GiB"


def _there(nodes: Sequence[InfraNode]) -> str:
    cores, gib = (shown(sum(getattr(node, field) for node in nodes)) for field in ("cores", "gib"))
    return f"{counted(len(nodes), 'machine')} with {cores} cores and {gib} GiB beside their systems"
