"""Addresses of load balancers: that nothing else has them, and that what announces them can; whose Cilium that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.gateway import GatewaySpec
from floor.address_ranges import AddressRange, read_range
from floor.counts import counted
from floor.problems import Path, Problem, shown
from stacks.site.checks.subnets import inner, is_no_sender, no_host, of_nodes, of_services
from stacks.site.reading.levels import MACHINES, machines_of
from stacks.site.reading.raw import Address, Network, address, at, host_of, interface, items, mapping

_POOL = ("addresses", "pool")
_RESERVED = ("addresses", "pool_reserved")
_BY = ("addresses", "announced_by")
_OWNER = (*MACHINES, "cilium_owner")
_POLICY = ("gateway", "external_traffic_policy")
_BY_ARP = " with a pool in the nodes' network and without bgp"


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with pool and gateway, as far as the values can be understood."""
    announced_by = at(values, *_BY)
    pool = [(index, block) for index, text in enumerate(items(at(values, *_POOL))) if (block := _range(text))]
    yield from _gateway(values, [block for _, block in pool], announced_by)
    machines = at(values, *MACHINES)
    own_cilium = isinstance(machines, Mapping) and machines.get("cni", "cilium") == "cilium"
    if at(values, *_OWNER) == "program" and isinstance(machines, Mapping) and not own_cilium:
        yield Problem(
            path=_OWNER,
            what="is program, and the program has no Cilium to change: the pod network is another's",
            got="program",
            allowed="program with cni: cilium",
            fix="set cluster.machines.cni to cilium, or take cilium_owner out",
        )
    if announced_by in ("cilium_l2", "cilium_bgp") and not own_cilium:
        yield Problem(
            path=_BY,
            what=f"is {announced_by}, and the pod network is not this program's Cilium",
            got=str(announced_by),
            fix=f"write metallb_l2{_BY_ARP if announced_by == 'cilium_bgp' else ''}, take the section addresses out if "
            "the cluster assigns them, or set cluster.machines.cni to cilium",
        )
    elif announced_by == "metallb_l2" and own_cilium:
        yield Problem(
            path=_BY,
            what="is metallb_l2, and this program's Cilium would assign the same addresses",
            got="metallb_l2",
            fix="write cilium_l2",
        )
    elif isinstance(machines, Mapping):
        where = "outside of networks.nodes" if announced_by == "cilium_bgp" else "of the nodes' network"
        yield from _taken(machines, pool, f"choose addresses {where} that nothing has")
        if announced_by != "cilium_bgp":
            yield from _asked_by_no_host(machines, pool)


def _asked_by_no_host(machines: Mapping[str, Any], pool: list[tuple[int, AddressRange]]) -> Iterator[Problem]:
    """Addresses of no subnet of a machine's link: no router looks for them there by ARP, so no node can answer."""
    networks = mapping(machines.get("networks"))
    nodes, links = of_nodes(networks), [subnet for _, _, subnet, _ in _linked(machines)]
    inside = [_whole(subnet) for _, subnet in inner(networks)]
    # The subnet of a link that asks DHCP is not known.
    dynamic = any(link.get("dhcp") is True for machine in machines_of(machines) for _, _, link in machine.links())
    for index, block in pool if nodes and not dynamic else ():
        ends = (block.first, block.last)
        odd = any(is_no_sender(ip) or ip.is_loopback or ip.is_link_local for ip in ends)
        # What is in another family, or handed out by the cluster, is reported for that.
        if odd or block.first.version != nodes[0].version or any(net.overlaps(block) for net in inside):
            continue
        out = next((ip for ip in ends if not any(ip in subnet for subnet in (*nodes, *links))), None)
        if out is not None:
            yield Problem(
                path=(*_POOL, str(index)),
                what=f"has {out}, which is in no subnet of the nodes: no host there asks for it by ARP, so no node "
                "can answer",
                got=str(block),
                allowed=f"addresses of {', '.join(map(str, nodes))}",
                fix="choose free addresses of that subnet, add the subnet to networks.nodes where a router is in it on "
                "the nodes' link, or announce them by cilium_bgp",
            )


def _range(text: Any) -> AddressRange | None:
    return read_range(text) if isinstance(text, str) else None


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works for some clients and not for others, or until another host has the address."""
    machines = mapping(at(values, *MACHINES))
    by_arp = at(values, *_BY) != "cilium_bgp"
    if by_arp and at(values, *_RESERVED) is True:
        return
    warn = _by_dhcp if by_arp else _among_hosts
    for index, text in enumerate(items(at(values, *_POOL))):
        block = _range(text)
        if block is not None:
            yield from warn(machines, block, (*_POOL, str(index)))


def _among_hosts(machines: Mapping[str, Any], block: AddressRange, path: Path) -> Iterator[Problem]:
    """Hosts of a subnet ask each other by ARP, whatever routers know."""
    named = [("networks.nodes", subnet) for subnet in of_nodes(mapping(machines.get("networks")))]
    named += [(f"the subnet of {link} of {name}", subnet) for name, link, subnet, _ in _linked(machines)]
    inside = next(((where, subnet) for where, subnet in named if _whole(subnet).overlaps(block)), None)
    if inside:
        where, subnet = inside
        yield Problem(
            path=path,
            what=f"lies in {where} ({subnet}), whose hosts ask for it by ARP, and by BGP none answers them",
            got=str(block),
            fix="choose addresses outside of it, which routers alone know",
        )


def _by_dhcp(machines: Mapping[str, Any], block: AddressRange, path: Path) -> Iterator[Problem]:
    """A subnet whose machines ask for addresses has a server that hands them out, to other hosts as well."""
    asking = [(name, subnet) for name, _, subnet, dhcp in _linked(machines) if dhcp and _whole(subnet).overlaps(block)]
    if asking:
        (first, subnet), others = asking[0], len({name for name, _ in asking}) - 1
        who = f"{first} and {counted(others, 'other machine')} get" if others else f"{first} gets"
        yield Problem(
            path=path,
            what=f"lies in {subnet}, where {who} addresses by DHCP: another host may be given one of these",
            got=str(block),
            fix="keep them out of what that server hands out, and state that by addresses.pool_reserved: true; a "
            "machine whose links are named without dhcp, one of them with node_address, asks no server",
        )


def _linked(machines: Mapping[str, Any]) -> Iterator[tuple[str, str, Network, bool]]:
    """Machine, link, a subnet that it is in, and whether it has its address there by DHCP.

    Talos asks on all links of a machine whose links are not named. What a server gives beside static addresses may be
    of any subnet.
    """
    nodes = of_nodes(mapping(machines.get("networks")))
    for machine in machines_of(machines):
        ip, links = address(machine.keys.get("address")), list(machine.links())
        own = [subnet for subnet in nodes if ip is not None and ip in subnet]
        static = any(
            link.get("node_address") is True or ip in map(address, items(link.get("addresses"))) for *_, link in links
        )
        for _, name, link in [] if machine.dead else links or [("", "a link", {"dhcp": True})]:
            by_dhcp = link.get("dhcp") is True and not static
            reached = [interface(text) for text in items(link.get("addresses"))]
            if link.get("node_address") is True:
                reached += own
            yield from ((machine.name, name, subnet, False) for subnet in reached if subnet is not None)
            # Talos asks for IPv4 addresses alone.
            yield from ((machine.name, name, subnet, subnet.version == 4) for subnet in own if by_dhcp)


def _taken(machines: Mapping[str, Any], pool: list[tuple[int, AddressRange]], fix: str) -> Iterator[Problem]:
    """Addresses of the pool that something else has, or that no Service gets."""
    networks = mapping(machines.get("networks"))
    nodes, taken = of_nodes(networks), list(_claims(machines))
    services = of_services(networks)
    if services is not None and any(subnet.version != services.version for subnet in nodes):
        # Then the Services' subnet is what is wrong.
        services = None
    for index, block in pool:
        path = (*_POOL, str(index))
        twice = next((other for number, other in pool[:index] if other.overlaps(block)), None)
        holders = [f"{holder} has {ip}" for ip, holder in taken if ip in block]
        inside = next((word for word, subnet in inner(networks) if _whole(subnet).overlaps(block)), "")
        ends, what = (block.first, block.last), ""
        edge = next((words for ip in ends if (words := no_host(ip, nodes))), "")
        if any(is_no_sender(ip) or ip.is_loopback or ip.is_link_local for ip in ends):
            what = "holds addresses that no host of a network has"
        elif services is not None and services.version != block.first.version:
            what = f"is IPv{block.first.version}, and Services have IPv{services.version} addresses alone ({services})"
        elif twice:
            what = f"overlaps {twice} of the same pool"
        elif inside:
            what = f"lies in networks.{inside}, which the cluster hands out itself"
        elif holders:
            what = f"has addresses that others have: {', '.join(holders[:3])}"
            what += f" and {len(holders) - 3} more" if len(holders) > 3 else ""
        elif edge:
            what = f"holds {edge}"
        if what:
            yield Problem(path=path, what=what, got=str(block), fix=fix)


def _whole(subnet: Network) -> AddressRange:
    return AddressRange(first=subnet[0], last=subnet[-1])


def _claims(machines: Mapping[str, Any]) -> Iterator[tuple[Address, str]]:
    """Addresses that the site names for something else, and for what."""
    vip = at(machines, "networks", "vip")
    named: list[tuple[Any, str]] = [(vip, "the VIP"), (host_of(machines.get("endpoint")), "endpoint")]
    named += [(text, "a resolver") for text in items(machines.get("resolvers"))]
    named += [(text, "a time server") for text in items(machines.get("time_servers"))]
    for machine in machines_of(machines):
        named.append((machine.keys.get("address"), machine.name))
        for _, name, link in machine.links():
            named += [(text, f"{name} of {machine.name}") for text in items(link.get("addresses"))]
            routes = [mapping(route) for route in items(link.get("routes"))]
            named += [(route.get("gateway"), "a gateway of routes") for route in routes]
    seen = set[Address]()
    for text, holder in named:
        ip = address(text)
        if ip is not None and ip not in seen:
            seen.add(ip)
            yield ip, holder


def _gateway(values: Mapping[str, Any], blocks: list[AddressRange], announced_by: Any) -> Iterator[Problem]:
    named = {balancer: address(at(values, balancer, "address")) for balancer in ("gateway", "portal")}
    for balancer, ip in named.items():
        if blocks and ip is not None and not any(ip in block for block in blocks):
            yield Problem(
                path=(balancer, "address"),
                what="is not in addresses.pool, so nothing assigns it",
                got=str(ip),
                allowed=", ".join(map(str, blocks)),
                fix="choose one of the pool, or add it to the pool",
            )
    if named["portal"] is not None and named["portal"] == named["gateway"]:
        yield Problem(
            path=("portal", "address"),
            what="is gateway.address too, and each has a load balancer of its own",
            got=str(named["portal"]),
            fix="choose another one of the pool, or take it out",
        )
    default = GatewaySpec.model_fields["external_traffic_policy"].default
    if announced_by == "cilium_l2" and at(values, *_POLICY) in (None, "Local") and default == "Local":
        yield Problem(
            path=_POLICY,
            what="is Local, and Cilium also answers ARP on nodes without an Envoy, where requests are then lost",
            got=shown(at(values, *_POLICY) or default),
            allowed="Cluster",
            fix="write Cluster; clients then have the address of a node",
        )
