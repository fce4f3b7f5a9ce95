"""The address plan: subnets, addresses of machines, VIP, gateways, and the servers that machines ask."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stacks.loading.levels import MACHINES, Machine, machines_of
from stacks.loading.problems import Path, Problem, nearest, shown
from stacks.loading.raw import Address, Network, address, at, host_of, items, mapping, network

_NETWORKS = (*MACHINES, "networks")
_DEFAULTS = {"pods": "10.244.0.0/16", "services": "10.96.0.0/12"}
# What Kubernetes' controller manager gives each node, by family.
_POD_PREFIX = {4: 24, 6: 64}
# Most bits of host part below a subnet. Services: kube-apiserver 1.36, cmd/kube-apiserver/app/options/validation.go,
# `maxCIDRBits = 20`. Pods: kube-controller-manager, pkg/controller/nodeipam/ipam/cidrset, `clusterSubnetMaxDiff = 16`.
_SERVICE_BITS, _POD_BITS = 20, 16
# The 10th address of the services is the cluster's DNS (Talos 1.13, v1alpha1 `clusterDNS`), so 16 are the fewest.
_SERVICE_BITS_LEAST = 4
_LINK_KINDS = ("links", "bonds", "vlans")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that does not go together, as far as the values can be understood."""
    machines = at(values, *MACHINES)
    if not isinstance(machines, Mapping):
        return
    networks = mapping(machines.get("networks"))
    found = list(machines_of(machines))
    subnets = [each for each in map(network, items(networks.get("nodes"))) if each is not None]
    yield from _subnets(networks, len(found))
    yield from _addresses(found, subnets)
    yield from _vip(machines, networks, found, subnets)
    for machine in found:
        yield from _gateways(machine, subnets)
    yield from _servers(machines, networks)


def _subnets(networks: Mapping[str, Any], nodes: int) -> Iterator[Problem]:
    named: list[tuple[Path, Any]] = [((key,), networks.get(key, default)) for key, default in _DEFAULTS.items()]
    named += [(("nodes", str(index)), each) for index, each in enumerate(items(networks.get("nodes")))]
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


def _addresses(found: Sequence[Machine], subnets: Sequence[Network]) -> Iterator[Problem]:
    listed = ", ".join(map(str, subnets))
    holders: defaultdict[Address, list[str]] = defaultdict(list)
    for machine in found:
        text, path = machine.keys.get("address"), (*MACHINES, "nodes", machine.name, "address")
        if not isinstance(text, str):
            continue
        ip = address(text)
        if ip is None or "/" in text:
            fix = f"write {ip}" if ip else "write its address"
            yield Problem(
                path=path, what="is no address", got=shown(text), allowed="an address such as 10.0.0.11", fix=fix
            )
            continue
        if ip in holders:
            yield Problem(path=path, what=f"{ip} is also that of {', '.join(holders[ip])}", fix="change one")
        holders[ip].append(machine.name)
        if subnets and not any(ip in subnet for subnet in subnets):
            yield Problem(
                path=path, what=f"is outside of networks.nodes ({listed})", got=str(ip), fix="correct one of them"
            )
        elif word := _no_host(ip, subnets):
            yield Problem(
                path=path, what=f"is {word}, which no machine can have", got=str(ip), fix="choose another address"
            )


def _no_host(ip: Address, subnets: Sequence[Network]) -> str:
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
    subnets = [each for each in map(network, items(networks.get("nodes"))) if each is not None]
    return any(vip in subnet for subnet in subnets) and not _no_host(vip, subnets)


def _vip(
    machines: Mapping[str, Any], networks: Mapping[str, Any], found: Sequence[Machine], subnets: Sequence[Network]
) -> Iterator[Problem]:
    text, link = networks.get("vip"), networks.get("vip_link")
    path = (*_NETWORKS, "vip")
    if link and not text:
        yield Problem(
            path=path,
            what="missing, and vip_link names the link that would carry it",
            fix="add vip, or take vip_link out",
        )
    if not isinstance(text, str):
        return
    if not link and "vip_link" not in networks:
        yield Problem(
            path=(*_NETWORKS, "vip_link"), what="missing", fix="name the control planes' link that carries the VIP"
        )
    vip = address(text)
    if vip is None or "/" in text:
        fix = f"write {vip}" if vip else "write a free address of networks.nodes"
        yield Problem(path=path, what="is no address", got=shown(text), allowed="an address such as 10.0.0.10", fix=fix)
        return
    if subnets and not any(vip in subnet for subnet in subnets):
        yield Problem(
            path=path,
            what=f"is outside of networks.nodes ({', '.join(map(str, subnets))}), so no router brings packets to it",
            got=str(vip),
            fix="choose a free address of that network",
        )
    elif word := _no_host(vip, subnets):
        yield Problem(path=path, what=f"is {word}", got=str(vip), fix="choose a free address of that network")
    taken = next(_holders(machines, found, vip), "")
    if taken:
        yield Problem(path=path, what=f"{vip} is the address of {taken}", fix="give the VIP an address of its own")
    yield from _vip_link(link, found)


def _holders(machines: Mapping[str, Any], found: Sequence[Machine], vip: Address) -> Iterator[str]:
    """Who else has the VIP's address."""
    for machine in found:
        if address(machine.keys.get("address")) == vip:
            yield machine.name
        for _, _, link in _links(machine):
            if vip in [address(each) for each in items(link.get("addresses"))]:
                yield machine.name
            if vip in [address(mapping(route).get("gateway")) for route in items(link.get("routes"))]:
                yield f"the gateway of {machine.name}"
    for key, called in (("resolvers", "a DNS server"), ("time_servers", "a time server")):
        if vip in [address(each) for each in items(machines.get(key))]:
            yield f"{called} ({key})"


def _vip_link(link: Any, found: Sequence[Machine]) -> Iterator[Problem]:
    """A control plane that names its links has no other than these; one that names none has Talos's default."""
    missing: dict[str, list[str]] = {}
    words: list[str] = []
    for machine in found:
        names = [name for kind in _LINK_KINDS for name in mapping(machine.keys.get(kind))]
        if machine.role == "controlplane" and isinstance(link, str) and names and link not in names:
            missing.setdefault(link, []).append(machine.name)
            words += [str(name) for name in names]
    for name, machines in missing.items():
        near = nearest(name, words)
        yield Problem(
            path=(*_NETWORKS, "vip_link"),
            what=f"is no link, bond or VLAN of {', '.join(machines)}",
            got=shown(name),
            allowed=", ".join(sorted(set(words))),
            near=near,
            fix=f"write {near}" if near else "name one of these",
        )


def _links(machine: Machine) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for kind in _LINK_KINDS:
        for name, link in mapping(machine.keys.get(kind)).items():
            yield kind, str(name), mapping(link)


def _gateways(machine: Machine, subnets: Sequence[Network]) -> Iterator[Problem]:
    """A gateway is reached over a link only from a subnet that the link is in."""
    own = address(machine.keys.get("address"))
    for kind, name, link in _links(machine):
        reached = [_interface(each) for each in items(link.get("addresses"))]
        if link.get("node_address") is True:
            reached += [subnet for subnet in subnets if own is not None and own in subnet]
        inside = [each for each in reached if each is not None]
        for index, route in enumerate(items(link.get("routes"))):
            text = mapping(route).get("gateway")
            gateway = address(text)
            if gateway is None or link.get("dhcp") is True:
                continue
            path = machine.path(kind, name, "routes", str(index), "gateway")
            if not any(gateway in each for each in inside):
                listed = ", ".join(sorted(map(str, inside))) or "no subnet"
                yield Problem(
                    path=path,
                    what=f"lies outside of every subnet of {name}, so it cannot be reached",
                    got=str(gateway),
                    allowed=listed,
                    fix="name the router in one of these"
                    if inside
                    else f"give {name} an address of the router's subnet",
                )
            elif gateway == own:
                yield Problem(path=path, what="is the machine's own address", got=str(gateway), fix="name the router")
            elif word := _no_host(gateway, inside):
                yield Problem(path=path, what=f"is {word}", got=str(gateway), fix="name the router")


def _interface(text: Any) -> Network | None:
    try:
        return ipaddress.ip_interface(text).network if isinstance(text, str) and "/" in text else None
    except ValueError:
        return None


def _servers(machines: Mapping[str, Any], networks: Mapping[str, Any]) -> Iterator[Problem]:
    """A server outside of the cluster cannot have an address of pods or Services: machines would not reach it."""
    inner = {key: network(networks.get(key, default)) for key, default in _DEFAULTS.items()}
    asked: list[tuple[Path, Any]] = [
        ((key, str(index)), each)
        for key in ("resolvers", "time_servers")
        for index, each in enumerate(items(machines.get(key)))
    ]
    asked += [((key,), host_of(machines.get(key))) for key in ("endpoint", "kernel_log", "log_destination")]
    for key, text in asked:
        ip = address(text)
        for name, subnet in inner.items():
            if ip is not None and subnet is not None and ip in subnet:
                yield Problem(
                    path=(*MACHINES, *key),
                    what=f"lies in {subnet} of networks.{name}, so machines would look for it inside of the cluster",
                    got=str(ip),
                    fix=f"correct it, or give networks.{name} another subnet",
                )
        if ip is not None and key[0] != "endpoint" and (ip.is_loopback or ip.is_unspecified or ip.is_multicast):
            yield Problem(path=(*MACHINES, *key), what="is no address of a server", got=str(ip), fix="correct it")
