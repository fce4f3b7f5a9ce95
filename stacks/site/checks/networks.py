"""Addresses of machines, of their links, and the VIP."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floor.problems import Path, Problem, nearest, shown
from stacks.site.checks import servers
from stacks.site.checks.subnets import inner, no_host, of_nodes
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import Address, Network, address, at, interface, items, mapping

_NETWORKS = (*MACHINES, "networks")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that does not go together, as far as the values can be understood."""
    machines = at(values, *MACHINES)
    if not isinstance(machines, Mapping):
        return
    networks = mapping(machines.get("networks"))
    every_machine = list(machines_of(machines))
    subnets = of_nodes(networks)
    yield from _addresses(machines, every_machine, subnets)
    yield from _vip(machines, networks, every_machine, subnets)
    apart = dict(inner(networks))
    crowded = {key: links for key, subnet in apart.items() if len(links := _inside(subnet, every_machine)) > 1}
    for key, links in crowded.items():
        yield Problem(
            path=(*_NETWORKS, key),
            what=f"{apart[key]} holds addresses of links: {_some(links)}",
            fix="choose a subnet that no link is in",
        )
        del apart[key]
    reported: set[Path] = set()
    for machine in every_machine:
        for problem in _of_links(machine, machines, subnets, apart):
            if problem.path not in reported:
                reported.add(problem.path)
                yield problem


def _inside(subnet: Network, every_machine: Sequence[SiteMachine]) -> dict[str, str]:
    """Machines with a link in this subnet, each with such a link."""
    return {
        machine.name: name
        for machine in every_machine
        for _, name, link in machine.links()
        if any(ip in subnet for ip in map(address, items(link.get("addresses"))) if ip is not None)
    }


def _some(links: Mapping[str, str]) -> str:
    (machine, link), *more = links.items()
    return f"{link} of {machine} and {len(more)} more"


def _addresses(
    machines: Mapping[str, Any], every_machine: Sequence[SiteMachine], subnets: Sequence[Network]
) -> Iterator[Problem]:
    listed = ", ".join(map(str, subnets))
    holders: defaultdict[Address, list[str]] = defaultdict(list)
    for machine in every_machine:
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
        elif word := no_host(ip, subnets):
            yield Problem(
                path=path, what=f"is {word}, which no machine can have", got=str(ip), fix="choose another address"
            )
        elif server := servers.at_address(machines, ip, machine.role):
            yield Problem(path=path, what=f"is the address of {server}", got=str(ip), fix="change one of them")


def _of_links(
    machine: SiteMachine, machines: Mapping[str, Any], nodes: Sequence[Network], apart: Mapping[str, Network]
) -> Iterator[Problem]:
    """Further addresses of a machine's links; networks of `apart` are those of pods and Services."""
    gateways = {
        address(mapping(route).get("gateway")): name
        for _, name, link in machine.links()
        for route in items(link.get("routes"))
    }
    for kind, name, link in machine.links():
        for index, text in enumerate(items(link.get("addresses"))):
            ip, subnet = address(text), interface(text)
            if ip is None or subnet is None:
                continue
            path, overlapped = machine.path(kind, name, "addresses", str(index)), _overlapped(subnet, apart)
            word = no_host(ip, [subnet]) or _of_nobody(ip, nodes)
            # Two links in one subnet: the kernel sends by the first, and routers may answer on the other.
            elsewhere = not _carries(machine, name) and next(
                (str(node_subnet) for node_subnet in nodes if node_subnet.overlaps(subnet)), ""
            )
            if ip in gateways:
                word = f"the gateway of {gateways[ip]}"
            elif server := servers.at_address(machines, ip, machine.role):
                word = f"the address of {server}"
            if word:
                yield Problem(path=path, what=f"is {word}", got=str(text), fix="choose another address")
            elif overlapped:
                yield Problem(
                    path=path,
                    what=f"{subnet} overlaps networks.{overlapped} ({apart[overlapped]}): those would be looked for on "
                    f"{name}",
                    got=str(text),
                    fix=f"correct the address or its prefix length, or give networks.{overlapped} another subnet",
                )
            elif elsewhere:
                yield Problem(
                    path=path,
                    what=f"lies in networks.nodes ({elsewhere}), which another link of the machine is in",
                    got=str(text),
                    fix=f"give {name} an address of a subnet of its own",
                )


def _carries(machine: SiteMachine, name: str) -> bool:
    """Whether the link is the one of the machine's own address, or no link is."""
    own = address(machine.keys.get("address"))
    carriers = {
        link
        for _, link, keys in machine.links()
        if keys.get("node_address") is True or own in map(address, items(keys.get("addresses")))
    }
    return not carriers or name in carriers


def _overlapped(subnet: Network, apart: Mapping[str, Network]) -> str:
    keys = (key for key, other in apart.items() if other.version == subnet.version and other.overlaps(subnet))
    return next(keys, "")


def _of_nobody(ip: Address, nodes: Sequence[Network]) -> str:
    # Emulated machines are at loopback addresses.
    loopback = ip.is_loopback and not any(subnet.is_loopback for subnet in nodes)
    return "no address of one machine" if loopback or ip.is_multicast or ip.is_unspecified else ""


def _vip(
    machines: Mapping[str, Any],
    networks: Mapping[str, Any],
    every_machine: Sequence[SiteMachine],
    subnets: Sequence[Network],
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
    elif word := no_host(vip, subnets):
        yield Problem(path=path, what=f"is {word}", got=str(vip), fix="choose a free address of that network")
    taken = next(_holders(machines, every_machine, vip), "")
    if taken:
        yield Problem(path=path, what=f"{vip} is the address of {taken}", fix="give the VIP an address of its own")
    yield from _vip_link(link, every_machine)


def _holders(machines: Mapping[str, Any], every_machine: Sequence[SiteMachine], vip: Address) -> Iterator[str]:
    """Who else has the VIP's address."""
    for machine in every_machine:
        if address(machine.keys.get("address")) == vip:
            yield machine.name
        for _, _, link in machine.links():
            if vip in [address(text) for text in items(link.get("addresses"))]:
                yield machine.name
            if vip in [address(mapping(route).get("gateway")) for route in items(link.get("routes"))]:
                yield f"the gateway of {machine.name}"
    if server := servers.at_address(machines, vip):
        yield server


def _vip_link(link: Any, every_machine: Sequence[SiteMachine]) -> Iterator[Problem]:
    """A control plane that names its links has no other than these; one that names none has Talos's default."""
    missing: dict[str, list[str]] = {}
    words: list[str] = []
    for machine in every_machine:
        names = [name for _, name, _ in machine.links()]
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
