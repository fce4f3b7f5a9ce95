"""Which machines there are: roles, control planes, the Kubernetes API's address, and a place for what needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from floor.problems import Path, Problem, shown
from stacks.site.checks.subnets import is_free_for_a_vip
from stacks.site.machine import MOST_MEMORY_GIB
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of, taint_of, takes_pods
from stacks.site.reading.raw import address, at, items, mapping, network, number
from talos.documents.checks import is_dns_name

# Fewer than any server: those with most memory have less than 100 GiB a thread.
_MOST_GIB_OF_A_CORE = 256
# The port on which Talos's Kubernetes API listens unless `localAPIServerPort` moves it, which no site can set.
_API_PORT = 6443
_NODES = (*MACHINES, "nodes")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that does not go together, as far as the values can be understood."""
    machines = at(values, *MACHINES)
    if not isinstance(machines, Mapping):
        return
    nodes = list(machines_of(machines))
    if nodes:
        yield from _control_planes(nodes)
        yield from _place_for_the_gateway(nodes)
    yield from _endpoint(machines, nodes)
    yield from _memory(nodes)
    for machine in nodes:
        if machine.keys.get("schedulable") is True and machine.role in {"worker", "hgx"}:
            yield Problem(
                path=(*_NODES, machine.name, "schedulable"),
                what="is for control planes",
                fix="leave it out, workers are",
            )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works, and is not wise."""
    machines = mapping(at(values, *MACHINES))
    planes = [machine for machine in machines_of(machines) if machine.role == "controlplane"]
    names = ", ".join(machine.name for machine in planes)
    if planes and len(planes) % 2 == 0:
        yield Problem(
            path=_NODES,
            what=f"{len(planes)} control planes ({names}) survive no more failures than {len(planes) - 1}: etcd needs "
            "more than half of them",
            fix="have an odd number of control planes",
        )
    host = address(_host(machines.get("endpoint")))
    if len(planes) > 1 and host is not None and host in {address(plane.keys.get("address")) for plane in planes}:
        yield Problem(
            path=(*MACHINES, "endpoint"),
            what=f"is the address of one of {len(planes)} control planes, and fails with it",
            got=shown(machines.get("endpoint")),
            fix="name a VIP or a load balancer",
        )
    dead = [plane.name for plane in planes if plane.dead]
    if dead and len(dead) < len(planes) and 2 * len(dead) >= len(planes):
        yield Problem(
            path=_NODES,
            what=f"{len(dead)} of {len(planes)} control planes are dead ({', '.join(dead)}): etcd has no majority, so "
            "it can remove no member",
            fix="recover etcd first: python -m sitectl docs recover-etcd",
        )
    vip = address(at(machines, "networks", "vip"))
    alone = vip is not None and vip == host and at(machines, "discovery") in (None, "off")
    if alone and len(planes) > 1 and any(machine.role != "controlplane" for machine in machines_of(machines)):
        # Of members that discovery finds and of the endpoint, Talos makes the addresses that KubePrism asks on a node
        # (k8s/kubeprism_endpoints.go); the holder's lease of the VIP is etcd's (network/operator/vip.go).
        yield Problem(
            path=(*MACHINES, "discovery"),
            what=f"is off, so workers reach the Kubernetes API by the VIP {vip} only: when the control plane that "
            "holds it fails, no kubelet reaches the API until another takes it, up to 60 s",
            allowed="a discovery service of the site, or the address of a load balancer as endpoint",
            fix="accept it, or set discovery to the service's address, or endpoint to the load balancer's",
        )
    gpu_nodes = [machine for machine in machines_of(machines) if machine.role == "hgx"]
    if gpu_nodes and values.get("purpose") != "trial" and at(machines, "hgx", "modules") in (None, "open"):
        yield Problem(
            path=(*MACHINES, "hgx", "modules"),
            what="open kernel modules on HGX boards are not known to work with Talos: Sidero knows DGX systems, which "
            "have the same boards, with the proprietary modules only (its page on "
            "upgrading Talos)",
            got="'open'",
            fix="set modules to proprietary until step 1.3 of docs/hardware-acceptance.md has passed on your machines",
        )
    if gpu_nodes and all(machine.dead for machine in gpu_nodes):
        yield Problem(
            path=_NODES,
            what=f"every node with GPUs is dead ({', '.join(machine.name for machine in gpu_nodes)}), so no model runs",
            fix="take dead: true out where a machine is back, or add nodes of role hgx",
        )
    takes = takes_pods(list(machines_of(machines)))
    if takes and all(machine.dead for machine in takes):
        yield Problem(
            path=_NODES,
            what=f"every node for pods that need no GPU is dead ({', '.join(machine.name for machine in takes)}), so "
            "no request reaches a model",
            fix="add a node of role worker, or write schedulable: true at a control plane",
        )


def _control_planes(nodes: Sequence[SiteMachine]) -> Iterator[Problem]:
    planes = [machine for machine in nodes if machine.role == "controlplane"]
    if not planes:
        yield Problem(
            path=_NODES, what="no control plane", allowed="one or more, best three", fix="give a node that role"
        )
    elif all(plane.dead for plane in planes):
        yield Problem(
            path=_NODES,
            what=f"every control plane is dead ({', '.join(plane.name for plane in planes)}), so nothing in the "
            "cluster can be changed any more",
            fix="recover etcd on one of them: python -m sitectl docs recover-etcd",
        )


def _place_for_the_gateway(nodes: Sequence[SiteMachine]) -> Iterator[Problem]:
    """Gateway, pickers and controllers tolerate no taint, and HGX nodes and control planes have one.

    Dead nodes count: removing one takes an `up` first.
    """
    takes = takes_pods(nodes)
    tainted = [f"{machine.name} (taint {taint_of(machine)})" for machine in takes if taint_of(machine)]
    if takes and len(tainted) < len(takes):
        return
    yield Problem(
        path=_NODES,
        what="no node takes pods that need no GPU, as gateway, pickers and controllers are: HGX nodes and control "
        "planes keep them off" + (f", and so do {', '.join(tainted)}" if tainted else ""),
        allowed="a node of role worker without a taint, or a control plane with schedulable: true",
        fix="add nodes of role worker, two or more, or write schedulable: true at a control plane",
    )


def _memory(nodes: Sequence[SiteMachine]) -> Iterator[Problem]:
    """Memory in another unit: of so few threads, only a number of MiB is so large."""
    reported: set[Path] = set()
    for machine in nodes:
        cores, gib, path = (
            *(number(machine.keys.get(key)) for key in ("cores", "memory_gib")),
            machine.path("memory_gib"),
        )
        if cores and gib and cores * _MOST_GIB_OF_A_CORE < gib <= MOST_MEMORY_GIB and path not in reported:
            reported.add(path)
            yield Problem(
                path=path,
                what=f"is more than a machine of {cores:g} cores has: the unit is GiB",
                got=f"{gib:g}",
                fix=f"write {max(1, round(gib / 1024))} if these are MiB, or correct it or cores",
            )


def _endpoint(machines: Mapping[str, Any], nodes: Sequence[SiteMachine]) -> Iterator[Problem]:
    text, path = machines.get("endpoint"), (*MACHINES, "endpoint")
    if not isinstance(text, str):
        return
    vip = address(at(machines, "networks", "vip"))
    planes = {address(machine.keys.get("address")): machine for machine in nodes if machine.role == "controlplane"}
    host, port = _host(text), _port(text)
    ours = address(host)
    emulated = any(subnet.is_loopback for subnet in map(network, items(at(machines, "networks", "nodes"))) if subnet)
    if not _is_endpoint(text, loopback=emulated):
        free = vip is not None and is_free_for_a_vip(vip, mapping(machines.get("networks")))
        best = at(machines, "networks", "vip") if free else next((str(ip) for ip in planes if ip), "HOST")
        yield Problem(
            path=path,
            what="is no address of a Kubernetes API",
            got=shown(text),
            allowed=f"https://HOST:PORT, usually port {_API_PORT}",
            fix=f"write https://{_bracketed(str(best))}:{_API_PORT}",
        )
        return
    for machine in nodes:
        if (
            ours is not None
            and ours != vip
            and machine.role in {"worker", "hgx"}
            and address(machine.keys.get("address")) == ours
        ):
            yield Problem(path=path, what=f"{ours} is a worker's address", fix="name the VIP or a control plane")
    if vip is not None and not is_free_for_a_vip(vip, mapping(machines.get("networks"))):
        # A VIP that is wrong itself is no address to recommend.
        vip = None
    if vip is not None and ours is not None and ours != vip:
        yield Problem(
            path=path,
            what=f"{ours} is not networks.vip ({vip})",
            fix=f"write https://{_bracketed(str(vip))}:{_API_PORT}, or leave vip out",
        )
    elif ours is not None and (ours == vip or ours in planes) and port != _API_PORT:
        yield Problem(
            path=path,
            what=f"names port {port} of {'the VIP' if ours == vip else 'a control plane'}, where nothing listens",
            got=shown(text),
            allowed=f"port {_API_PORT}; another one on a load balancer alone",
            fix=f"write https://{_bracketed(host)}:{_API_PORT}",
        )
    plane = planes.get(ours) if ours is not None else None
    living = [machine for machine in planes.values() if not machine.dead]
    if plane is not None and plane.dead and living:
        yield Problem(
            path=path,
            what=f"is the address of {plane.name}, which is dead",
            got=shown(text),
            fix=f"write https://{_bracketed(str(address(living[0].keys.get('address'))))}:{_API_PORT}",
        )


def _is_endpoint(text: str, *, loopback: bool) -> bool:
    host, port = _host(text), _port(text)
    ip = address(host)
    try:
        split = urlsplit(text)
    except ValueError:
        return False
    named = is_dns_name(host) and not host.replace(".", "").isdecimal()
    reached = ip is not None and not ((ip.is_loopback and not loopback) or ip.is_unspecified or ip.is_multicast)
    whole = (
        split.scheme == "https" and split.path in ("", "/") and not (split.query or split.fragment or split.username)
    )
    return whole and bool(port) and (reached or (ip is None and named and host != "localhost"))


def _host(text: Any) -> str:
    try:
        return urlsplit(text).hostname or "" if isinstance(text, str) else ""
    except ValueError:
        return ""


def _port(text: str) -> int | None:
    try:
        return urlsplit(text).port
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
