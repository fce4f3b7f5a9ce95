"""Subnets of nodes, pods and Services: their form, their sizes, and that they do not overlap."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floor.problems import Path, Problem, shown
from stacks.site.reading.levels import MACHINES
from stacks.site.reading.raw import Address, Network, at, items, mapping, network

_NETWORKS = (*MACHINES, "networks")
_DEFAULTS = {"pods": "10.244.0.0/16", "services": "10.96.0.0/12"}
# What Kubernetes' controller manager gives each node, by family.
_POD_PREFIX = {4: 24, 6: 64}
# Most bits of host part below a subnet. Services: kube-apiserver 1.36, cmd/kube-apiserver/app/options/validation.go,
# `maxCIDRBits = 20`. Pods: kube-controller-manager, pkg/controller/nodeipam/ipam/cidrset, `clusterSubnetMaxDiff = 16`.
_SERVICE_BITS, _POD_BITS = 20, 16
# Kubernetes, the platform and its charts have some 20 Services, and each model one for its pickers and one for the
# server of its volume.
_SERVICE_BITS_LEAST = 6


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that is wrong with the subnets."""
    machines = at(values, *MACHINES)
    if isinstance(machines, Mapping):
        yield from _subnets(mapping(machines.get("networks")), len(mapping(machines.get("nodes"))))


def of_nodes(networks: Mapping[str, Any]) -> list[Network]:
    """The nodes' subnets, as far as they are any."""
    return [subnet for subnet in map(network, items(networks.get("nodes"))) if subnet is not None]


def of_services(networks: Mapping[str, Any]) -> Network | None:
    """The Services' subnet, if it is one."""
    return network(networks.get("services", _DEFAULTS["services"]))


def inner(networks: Mapping[str, Any]) -> Iterator[tuple[str, Network]]:
    """Subnets of pods and Services that lie apart from those of the nodes; others are problems of their own."""
    nodes = of_nodes(networks)
    for key, default in _DEFAULTS.items():
        subnet = network(networks.get(key, default))
        if subnet is not None and not any(map(subnet.overlaps, nodes)):
            yield key, subnet


def is_no_sender(ip: Address) -> bool:
    """Whether no packet comes from this address: it means several hosts, none, or nothing yet."""
    return ip.is_unspecified or ip.is_multicast or (ip.version == 4 and ip.is_reserved)


def no_host(ip: Address, subnets: Sequence[Network]) -> str:
    """What the address is in its subnet, where it is no host's."""
    for subnet in subnets:
        if ip in subnet and subnet.version == 4 and subnet.prefixlen < 31:
            if ip == subnet.network_address:
                return f"the network address of {subnet}"
            if ip == subnet.broadcast_address:
                return f"the broadcast address of {subnet}"
    return ""


def is_free_for_a_vip(vip: Address, networks: Mapping[str, Any]) -> bool:
    """Whether the address can be a host's in the nodes' networks."""
    subnets = of_nodes(networks)
    return any(vip in subnet for subnet in subnets) and not no_host(vip, subnets)


def _subnets(networks: Mapping[str, Any], nodes: int) -> Iterator[Problem]:
    # Nodes first: racks are hard to renumber, so an overlap is reported at the pods or Services.
    named: list[tuple[Path, Any]] = [
        (("nodes", str(index)), text) for index, text in enumerate(items(networks.get("nodes")))
    ]
    named += [((key,), networks.get(key, default)) for key, default in _DEFAULTS.items()]
    known: list[tuple[Path, Network]] = []
    for key, text in named:
        subnet, path = network(text), (*_NETWORKS, *key)
        if subnet is None:
            if isinstance(text, str):
                yield _not_a_subnet(path, text)
            continue
        if word := _not_for_hosts(subnet, inner=key[0] != "nodes"):
            yield Problem(
                path=path,
                what=f"is {word}",
                got=str(subnet),
                fix="choose a subnet of the site's own, such as 10.5.0.0/24",
            )
        for other, there in known:
            if other[0] == key[0] or subnet.version != there.version or not subnet.overlaps(there):
                continue
            yield Problem(path=path, what=f"{subnet} overlaps {other[0]} ({there})", fix="move one of them")
        known.append((key, subnet))
    yield from _sizes({key[0]: subnet for key, subnet in known}, nodes)


def _not_a_subnet(path: Path, text: str) -> Problem:
    try:
        whole = f"write {ipaddress.ip_network(text, strict=False)}" if "/" in text else "add its prefix length"
    except ValueError:
        whole = "correct it"
    return Problem(path=path, what="is no subnet", got=shown(text), allowed="a subnet such as 10.5.0.0/24", fix=whole)


def _not_for_hosts(subnet: Network, *, inner: bool) -> str:
    """Why no machine, or with `inner` no pod or Service, can have an address of this subnet.

    Emulated machines are at loopback addresses.
    """
    for word, wrong in (
        ("multicast", subnet.is_multicast),
        ("loopback", inner and subnet.is_loopback),
        ("link-local, which no router passes on", subnet.is_link_local),
        ("reserved", subnet.is_reserved and subnet.version == 4),
    ):
        if wrong:
            return word
    # 0.0.0.0/8 and ::/8 name no host.
    return "the whole internet" if subnet.prefixlen < 2 else "no network of hosts" if subnet[0].is_unspecified else ""


def _sizes(known: Mapping[str, Network], nodes: int) -> Iterator[Problem]:
    pods, services, machines = known.get("pods"), known.get("services"), known.get("nodes")
    for name, subnet in (("pods", pods), ("services", services)):
        if subnet is not None and machines is not None and subnet.version != machines.version:
            yield Problem(
                path=(*_NETWORKS, name),
                what=f"is IPv{subnet.version}, and the nodes' addresses are IPv{machines.version}",
                got=str(subnet),
                fix=f"choose an IPv{machines.version} subnet",
            )
    if services is not None:
        bits = services.max_prefixlen - services.prefixlen
        if not _SERVICE_BITS_LEAST <= bits <= _SERVICE_BITS:
            largest, smallest = services.max_prefixlen - _SERVICE_BITS, services.max_prefixlen - _SERVICE_BITS_LEAST
            fitting = largest if bits > _SERVICE_BITS else smallest
            yield Problem(
                path=(*_NETWORKS, "services"),
                what="is larger than the Kubernetes API takes" if bits > _SERVICE_BITS else "has too few addresses",
                got=str(services),
                allowed=f"/{largest} to /{smallest}",
                fix=f"write {ipaddress.ip_network(f'{services.network_address}/{fitting}', strict=False)}",
            )
    if pods is None:
        return
    prefix = _POD_PREFIX[pods.version]
    if prefix - pods.prefixlen > _POD_BITS:
        yield Problem(
            path=(*_NETWORKS, "pods"),
            what=f"is larger than Kubernetes can divide into a /{prefix} for each node",
            got=str(pods),
            allowed=f"/{prefix - _POD_BITS} to /{prefix}",
            fix=f"write {pods.network_address}/{prefix - _POD_BITS}",
        )
    elif pods.prefixlen > prefix or nodes > 2 ** (prefix - pods.prefixlen):
        yield Problem(
            path=(*_NETWORKS, "pods"),
            what=f"{pods} has no /{prefix} for each of {nodes} nodes",
            fix="give pods a larger subnet",
        )
