"""Routers that learn addresses by BGP: that each is one, can be reached, and has a machine that announces to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.bgp import BgpPeerSpec
from components.specs.gateway import GatewaySpec
from floor.address_ranges import read_range
from floor.problems import Path, Problem, nearest, shown
from stacks.site.announcing import announcing, for_proxies
from stacks.site.checks.subnets import inner, is_no_sender, no_host, of_nodes
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import Address, Network, address, at, interface, items, mapping

_BGP: Path = ("addresses", "bgp")
_PEERS = (*_BGP, "peers")
_POLICY = ("gateway", "external_traffic_policy")
# What no router may have as its number, below the last one.
_RESERVED = {23456: "AS_TRANS, RFC 6793", 65535: "RFC 7300"}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with routers and their sessions, as far as the values can be understood."""
    machines, peers = at(values, *MACHINES), mapping(at(values, *_PEERS))
    if at(values, "addresses", "announced_by") != "cilium_bgp" or not isinstance(machines, Mapping):
        return
    yield from _numbers(values, peers)
    nodes = {machine.name: machine for machine in machines_of(machines)}
    sessions = announcing(machines, peers)
    for name, peer in peers.items():
        path = (*_PEERS, str(name))
        yield from _nodes(path, mapping(peer), nodes, sessions)
        ip = address(mapping(peer).get("address"))
        if ip is None:
            continue
        if what := _no_router(ip, values, machines):
            yield Problem(path=(*path, "address"), what=what, got=str(ip), fix="write the address of the router")
        else:
            yield from _twice(path, ip, peers, sessions)
            yield from _reached(path, ip, mapping(peer), at(values, *_BGP, "local_asn"), machines, sessions)
    yield from _unheard(values, machines, sessions)


def _numbers(values: Mapping[str, Any], peers: Mapping[str, Any]) -> Iterator[Problem]:
    paths = [(*_BGP, "local_asn"), *((*_PEERS, str(name), "asn") for name in peers)]
    for path in paths:
        number = at(values, *path)
        if isinstance(number, int) and number in _RESERVED:
            yield Problem(
                path=path,
                what=f"is reserved ({_RESERVED[number]}), and routers refuse it",
                got=str(number),
                allowed="1 to 4294967294 but for 23456 and 65535; 64512 to 65534 are private",
                fix="write the number of the autonomous system",
            )


def _nodes(
    path: Path, peer: Mapping[str, Any], nodes: Mapping[str, SiteMachine], sessions: Mapping[str, list[str]]
) -> Iterator[Problem]:
    named = [str(name) for name in items(peer.get("nodes"))]
    for index, name in enumerate(named):
        if name not in nodes:
            near = nearest(name, nodes)
            yield Problem(
                path=(*path, "nodes", str(index)),
                what="is no machine of cluster.machines.nodes",
                got=shown(name),
                near=near,
                allowed=", ".join(sorted(nodes)),
                fix=f"write {near}" if near else "write one of these",
            )
        elif name in named[:index]:
            yield Problem(
                path=(*path, "nodes", str(index)), what="is there twice", got=name, fix="take one of the two out"
            )
    if all(name in nodes for name in named) and not any(path[-1] in peers for peers in sessions.values()):
        yield Problem(
            path=(*path, "nodes") if named else path,
            what="has no machine that announces to it: each one is dead" if named else "has no machine for proxies",
            got=f"[{', '.join(named)}]",
            fix="name machines that run, or take the peer out",
        )


def _no_router(ip: Address, values: Mapping[str, Any], machines: Mapping[str, Any]) -> str:
    """Why the address can be no router's."""
    networks = mapping(machines.get("networks"))
    if is_no_sender(ip) or ip.is_loopback or ip.is_link_local:
        return "is no address that a router answers on"
    inside = next((word for word, subnet in inner(networks) if ip in subnet), "")
    if inside:
        return f"lies in networks.{inside}, which the cluster hands out itself"
    pool = [read_range(text) for text in items(at(values, "addresses", "pool")) if isinstance(text, str)]
    if any(ip in block for block in pool if block):
        return "is in addresses.pool, so a load balancer would get it"
    if ip == address(networks.get("vip")):
        return "is the VIP, which a control plane has"
    for machine in machines_of(machines):
        own = [
            machine.keys.get("address"),
            *(text for *_, link in machine.links() for text in items(link.get("addresses"))),
        ]
        if ip in map(address, own):
            return f"is an address of {machine.name}"
    word = no_host(ip, of_nodes(networks))
    return f"is {word}" if word else ""


def _twice(path: Path, ip: Address, peers: Mapping[str, Any], sessions: Mapping[str, list[str]]) -> Iterator[Problem]:
    """A machine has one session with an address."""
    same = [str(name) for name, peer in peers.items() if address(mapping(peer).get("address")) == ip]
    first, name = same[0], path[-1]
    node = next((node for node, names in sessions.items() if {first, name} <= set(names)), "")
    if first != name and node:
        yield Problem(
            path=(*path, "address"),
            what=f"is the address of {first} too, and {node} can have one session with it",
            got=str(ip),
            fix="take one of the two out, or give each machines of its own",
        )


def _reached(
    path: Path,
    ip: Address,
    peer: Mapping[str, Any],
    local_asn: Any,
    machines: Mapping[str, Any],
    sessions: Mapping[str, list[str]],
) -> Iterator[Problem]:
    """Of the machines' own family; to a router of another system, packets have one hop unless the site allows more."""
    hops, inside = peer.get("hops", BgpPeerSpec.model_fields["hops"].default), peer.get("asn") == local_asn
    if inside and hops != 1:
        yield Problem(
            path=(*path, "hops"),
            what="is not read for a router of the machines' own autonomous system",
            got=shown(hops),
            fix="take it out",
        )
    subnets = of_nodes(mapping(machines.get("networks")))
    for machine in machines_of(machines):
        links = [link for *_, link in machine.links()]
        if path[-1] not in sessions.get(machine.name, ()) or any(link.get("dhcp") is True for link in links):
            continue
        near = _subnets(machine, subnets)
        if near and all(subnet.version != ip.version for subnet in near):
            yield Problem(
                path=(*path, "address"),
                what=f"is IPv{ip.version}, and {machine.name} has no such address, so no session comes up",
                got=str(ip),
                allowed=", ".join(sorted(map(str, near))),
                fix=f"write the router's IPv{near[0].version} address",
            )
            return
        if not inside and hops == 1 and not any(ip in subnet for subnet in near):
            yield Problem(
                path=(*path, "address"),
                what=f"lies in no subnet of {machine.name}, and hops is 1, so no session comes up",
                got=str(ip),
                allowed=", ".join(sorted(map(str, near))),
                fix="write the router's address in one of these, or set hops to the routers on the way and one more",
            )
            return


def _subnets(machine: SiteMachine, nodes: list[Network]) -> list[Network]:
    own = address(machine.keys.get("address"))
    linked = [interface(text) for *_, link in machine.links() for text in items(link.get("addresses"))]
    return [*(subnet for subnet in nodes if own in subnet), *(subnet for subnet in linked if subnet)]


def _unheard(
    values: Mapping[str, Any], machines: Mapping[str, Any], sessions: Mapping[str, list[str]]
) -> Iterator[Problem]:
    """With the policy Local, a machine announces its own proxies alone."""
    policy = at(values, *_POLICY) or GatewaySpec.model_fields["external_traffic_policy"].default
    silent = [machine.name for machine in for_proxies(machines) if machine.name not in sessions]
    if policy == "Local" and sessions and silent:
        yield Problem(
            path=_POLICY,
            what=f"is Local, and proxies on {', '.join(silent)} would be announced to no router",
            got=str(policy),
            allowed="Cluster, or a peer for each machine that takes pods without GPUs",
            fix="write Cluster, or add these machines to the nodes of a peer",
        )
