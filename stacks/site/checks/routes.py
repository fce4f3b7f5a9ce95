"""Static routes: gateways, sources, metrics and packet sizes that the kernel takes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floor.problems import Path, Problem
from stacks.site.checks.subnets import no_host, of_nodes
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import Network, address, at, interface, items, mapping, network, number

# Of a route that names none (Talos 1.13, nethelpers).
_METRIC = 1024


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Routes that cannot work; each once, however many machines inherit it."""
    machines = mapping(at(values, *MACHINES))
    subnets = of_nodes(mapping(machines.get("networks")))
    reported: set[Path] = set()
    admins = items(mapping(machines.get("firewall")).get("admins"))
    for machine in machines_of(machines):
        for problem in (
            *_gateways(machine, subnets),
            *_sources(machine),
            *_metrics(machine),
            *_sizes(machine),
            *_way_back(machine, subnets, [subnet for subnet in map(network, admins) if subnet]),
        ):
            if problem.path not in reported:
                reported.add(problem.path)
                yield problem


def _gateways(machine: SiteMachine, subnets: Sequence[Network]) -> Iterator[Problem]:
    """A gateway is reached over a link only from a subnet that the link is in."""
    own = address(machine.keys.get("address"))
    for kind, name, link in machine.links():
        reached = [interface(text) for text in items(link.get("addresses"))]
        if link.get("node_address") is True:
            around = [subnet for subnet in subnets if own is not None and own in subnet]
            if not around:
                # An address or a subnet that is wrong itself, which is reported there.
                continue
            reached += around
        inside = [subnet for subnet in reached if subnet is not None]
        for index, route in enumerate(items(link.get("routes"))):
            text = mapping(route).get("gateway")
            gateway = address(text)
            # A router has its link-local address on every link.
            if gateway is None or link.get("dhcp") is True or (gateway.version == 6 and gateway.is_link_local):
                continue
            path = machine.path(kind, name, "routes", str(index), "gateway")
            if not any(gateway in subnet for subnet in inside):
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
            elif word := no_host(gateway, inside):
                yield Problem(path=path, what=f"is {word}", got=str(gateway), fix="name the router")


def _routes(machine: SiteMachine) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Path, link and keys of each route."""
    for kind, name, link in machine.links():
        for index, route in enumerate(items(link.get("routes"))):
            yield machine.path(kind, name, "routes", str(index)), name, mapping(route)


def _sources(machine: SiteMachine) -> Iterator[Problem]:
    """The kernel refuses a route whose source is no address of the machine."""
    links = [link for _, _, link in machine.links()]
    own = [address(machine.keys.get("address"))]
    own += [address(text) for link in links for text in items(link.get("addresses"))]
    for path, _, route in _routes(machine):
        source = address(route.get("source"))
        if source is not None and source not in own and not any(link.get("dhcp") is True for link in links):
            yield Problem(
                path=(*path, "source"),
                what=f"is no address of {machine.name}, so the kernel refuses the route",
                got=str(source),
                fix="take it out, or add the address to a link of the machine",
            )


def _metrics(machine: SiteMachine) -> Iterator[Problem]:
    """Of two routes to one place with one metric, the kernel takes the first alone."""
    known: dict[tuple[Any, ...], tuple[Path, Any]] = {}
    for path, name, route in _routes(machine):
        gateway, table = address(route.get("gateway")), route.get("table") or "main"
        place = _destination(route)
        metric = route.get("metric")
        metric = _METRIC if metric is None else metric
        if place is None or not isinstance(metric, int) or not isinstance(table, str | int):
            continue
        key, way = (place, table, metric), (name, gateway)
        other = known.setdefault(key, (path, way))
        if other[1] != way:
            yield Problem(
                path=path,
                what=f"leads to {place} with metric {metric} as {'.'.join(other[0])} does: the kernel takes one",
                fix=f"write metric: {max(seen[2] for seen in known if seen[:2] == key[:2]) + _METRIC}, or take it out",
            )


def _way_back(machine: SiteMachine, subnets: Sequence[Network], admins: Sequence[Network]) -> Iterator[Problem]:
    """A machine that names its links has these routes alone; without one to the admins it answers none of them."""
    links = list(machine.links())
    members = {member for _, _, link in links for member in items(link.get("links"))}
    holder = next(
        ((kind, name) for kind, name, link in links if link.get("node_address") is True and name not in members), None
    )
    # A machine without a link that carries its address has a problem for that.
    if holder is None or any(link.get("dhcp") is True or link.get("up") is False for _, _, link in links):
        return
    reached = [interface(text) for _, _, link in links for text in items(link.get("addresses"))]
    routes = [_destination(route) for _, _, route in _routes(machine)]
    if None in routes:
        # A route that leads nowhere is reported for itself.
        return
    ways = [way for way in (*subnets, *reached, *routes) if way is not None]
    for admin in admins:
        families = {subnet.version for subnet in subnets}
        if admin.version not in families or any(admin.overlaps(way) for way in ways):
            continue
        yield Problem(
            path=machine.path(*holder, "routes"),
            what=f"holds no way to {admin} of firewall.admins, nor does another link: no client there is answered by "
            f"{machine.name} once it is installed",
            fix="add a route without destination, such as {gateway: ADDRESS OF THE ROUTER}",
        )
        return


def _destination(route: Mapping[str, Any]) -> Network | None:
    text, gateway = route.get("destination"), address(route.get("gateway"))
    if text is None:
        return ipaddress.ip_network("::/0" if gateway.version == 6 else "0.0.0.0/0") if gateway else None
    return interface(text)


def _sizes(machine: SiteMachine) -> Iterator[Problem]:
    """A packet that is larger than its link takes is dropped."""
    links = {name: link for _, name, link in machine.links()}
    for path, name, route in _routes(machine):
        carrier = links[name] if "mtu" in links[name] else mapping(links.get(str(links[name].get("parent"))))
        most, mtu = number(carrier.get("mtu")), number(route.get("mtu"))
        if most is not None and mtu is not None and mtu > most:
            yield Problem(
                path=(*path, "mtu"),
                what=f"is more than {name} carries, {most:g}",
                got=f"{mtu:g}",
                fix=f"write {most:g} or less",
            )
