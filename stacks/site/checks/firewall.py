"""The firewall's own keys: what clients reach, and what they must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from floor.problems import Problem
from stacks.site.checks.models import ENVOYS_OWN
from stacks.site.checks.subnets import inner, is_no_sender, of_nodes
from stacks.site.reading.levels import MACHINES, machines_of
from stacks.site.reading.raw import Address, Network, address, at, items, mapping, network
from talos.documents import checks
from talos.documents.firewall import NetworkRuleConfig, Role, cluster_rules

_FIREWALL = (*MACHINES, "firewall")
_PORTS = (*_FIREWALL, "load_balancer_ports")
_GATEWAY_PORT = 443
_LAST_PORT = 65535
# Rule -> what listens at its ports, through which a client could take over the machine, its pods or the cluster.
_APIS = {
    "talos-api": "Talos's API, for which admins is the key",
    "kubelet": "the kubelet, which nodes alone need",
    "kubernetes-api": "the Kubernetes API, for which admins is the key",
    "trustd": "trustd, which nodes alone need",
    "etcd": "etcd, which control planes alone need",
}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Ports and subnets that leave something shut, or open too much."""
    machines = mapping(at(values, *MACHINES))
    firewall = machines.get("firewall")
    if isinstance(firewall, Mapping):
        guarded = _guarded(_roles(machines))
        yield from _ports(items(firewall.get("load_balancer_ports")), _listeners(values), guarded)
        yield from _control_planes(machines, firewall)
        yield from _families(machines, firewall)
        yield from _senders(firewall)
        yield from _inside(firewall, dict(inner(mapping(machines.get("networks")))))


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works, and is not wise."""
    firewall = mapping(at(values, *_FIREWALL))
    if firewall.get("load_balancer_ports") and not firewall.get("clients"):
        yield Problem(
            path=(*_FIREWALL, "clients"),
            what="names no subnet, so only the nodes themselves reach the gateway",
            fix="name the subnets of those who call the models",
        )


def _families(machines: Mapping[str, Any], firewall: Mapping[str, Any]) -> Iterator[Problem]:
    """Nodes have addresses of one family, and packets of the other do not reach them."""
    families = {subnet.version for subnet in of_nodes(mapping(machines.get("networks")))}
    for key, why in (("admins", "`up` would reach no machine"), ("clients", "no client would reach the gateway")):
        subnets = [subnet for subnet in map(network, items(firewall.get(key))) if subnet]
        if subnets and families and not families & {subnet.version for subnet in subnets}:
            version = min(families)
            yield Problem(
                path=(*_FIREWALL, key),
                what=f"has no IPv{version} subnet, and the nodes' addresses are IPv{version}, so {why}",
                got=f"[{', '.join(map(str, subnets))}]",
                fix=f"write their IPv{version} subnets",
            )


def _senders(firewall: Mapping[str, Any]) -> Iterator[Problem]:
    """Subnets that no packet comes from."""
    for key in ("admins", "clients"):
        for index, text in enumerate(items(firewall.get(key))):
            subnet = network(text)
            if subnet is not None and (subnet.is_loopback or (subnet.prefixlen and is_no_sender(subnet[0]))):
                yield Problem(
                    path=(*_FIREWALL, key, str(index)),
                    what="holds no address that a packet comes from over the network",
                    got=str(subnet),
                    fix="write the subnet of those who are let in, or take it out",
                )


def _inside(firewall: Mapping[str, Any], apart: Mapping[str, Network]) -> Iterator[Problem]:
    """Subnets of people that pods or Services have: machines answer them inside of the cluster.

    All pods may be let in as well, beside people.
    """
    for key in ("admins", "clients"):
        let_in = [subnet for subnet in map(network, items(firewall.get(key))) if subnet]
        for index, subnet in enumerate(map(network, items(firewall.get(key)))):
            name = next((name for name, own in apart.items() if subnet and _within(subnet, own)), "")
            if subnet is None or not name or (subnet == apart[name] and (key == "clients" or len(let_in) > 1)):
                continue
            yield Problem(
                path=(*_FIREWALL, key, str(index)),
                what=f"lies in networks.{name} ({apart[name]}), so machines answer it inside of the cluster, and reach "
                "no host of that network",
                got=str(subnet),
                fix=f"correct it, or give networks.{name} another subnet",
            )


def _within(subnet: Network, other: Network) -> bool:
    return subnet.version == other.version and subnet[0] in other and subnet[-1] in other


def opens(ports: Any, port: int) -> bool:
    """Whether a port, or a range of ports, holds this one."""
    first, last = _ends(ports)
    return first is not None and last is not None and first <= port <= last


def _roles(machines: Mapping[str, Any]) -> tuple[Role, ...]:
    """Of machines whose ports are open for clients: all that take pods."""
    serves = any(machine.keys.get("schedulable") is True for machine in machines_of(machines))
    return ("worker", "controlplane") if serves else ("worker",)


def _listeners(values: Mapping[str, Any]) -> dict[str, int]:
    """Key of each port that clients reach -> the port; one that is none, or Envoy's, is reported at its key."""
    asked = {"gateway.port": at(values, "gateway", "port")}
    if values.get("portal") is not None:
        asked["portal.port"] = at(values, "portal", "port")
    ports = {key: _GATEWAY_PORT if port is None else port for key, port in asked.items()}
    return {
        key: port
        for key, port in ports.items()
        if isinstance(port, int) and 1 <= port <= _LAST_PORT and port not in ENVOYS_OWN
    }


def _ports(ports: Sequence[Any], listeners: Mapping[str, int], guarded: Mapping[int, str]) -> Iterator[Problem]:
    """Gateways answer where pods run, at the port that their listener has; nothing else is for clients."""
    wrong = {key: port for key, port in listeners.items() if port in guarded}
    for key, port in wrong.items():
        yield Problem(
            path=tuple(key.split(".")),
            what=f"is on a node the port of {guarded[port]}, and the firewall would open both to clients",
            got=str(port),
            fix=f"write {_GATEWAY_PORT}, here and in {'.'.join(_PORTS)}",
        )
    if wrong or not listeners:
        return
    held = [number for number in guarded if any(opens(entry, number) for entry in ports)]
    shut = {key: port for key, port in listeners.items() if not any(opens(entry, port) for entry in ports)}
    opened = " and ".join(f"{number}, the port of {guarded[number]}" for number in held)
    closed = " and ".join(f"{key}, {port}" for key, port in shut.items())
    reached = " and ".join(key.partition(".")[0] for key in shut)
    if held or shut:
        yield Problem(
            path=_PORTS,
            what=f"opens {opened}, to the clients' networks"
            if held
            else f"does not open {closed}, so no client reaches the {reached}",
            got=f"[{', '.join(map(str, ports))}]" if ports else "no port",
            fix=f"write [{', '.join(_right(ports, sorted({*listeners.values()}), guarded))}]",
        )


@lru_cache
def _guarded(roles: tuple[Role, ...]) -> Mapping[int, str]:
    """Ports of machines of these roles that no client may reach, and what listens there."""
    listeners: dict[int, str] = {}
    for role in roles:
        for rule in cluster_rules(role, admins=(), control_planes=(), nodes=(), cni="external"):
            if isinstance(rule, NetworkRuleConfig) and rule.name in _APIS:
                for first, last in map(_ends, rule.ports):
                    listeners |= dict.fromkeys(range(first or 0, (last or 0) + 1), _APIS[rule.name])
    return listeners


def _right(ports: Sequence[Any], listeners: Sequence[int], guarded_ports: Mapping[int, str]) -> Iterator[str]:
    """The ports that clients may have, cut out of those that were written, and those of the gateways."""
    allowed: dict[tuple[int, int], None] = {}
    for entry in ports:
        first, last = _ends(entry)
        if first is None or last is None or checks.ports((entry,)) is not None:
            continue
        for guarded in sorted(guarded_ports):
            if first <= guarded <= last:
                if first < guarded:
                    allowed[first, guarded - 1] = None
                first = guarded + 1
        if first <= last:
            allowed[first, last] = None
    for port in listeners:
        if not any(first <= port <= last for first, last in allowed):
            allowed[port, port] = None
    for first, last in allowed:
        yield str(first) if first == last else f"{first}-{last}"


def _ends(ports: Any) -> tuple[int | None, int | None]:
    first, dash, last = str(ports).partition("-")
    last = last if dash else first
    return (int(first), int(last)) if _is_number(first) and _is_number(last) else (None, None)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= len("65535")


def _control_planes(machines: Mapping[str, Any], firewall: Mapping[str, Any]) -> Iterator[Problem]:
    planes = [subnet for subnet in map(network, items(firewall.get("control_planes"))) if subnet]
    for machine in machines_of(machines):
        ip: Address | None = address(machine.keys.get("address"))
        if machine.role == "controlplane" and planes and ip and not any(ip in subnet for subnet in planes):
            yield Problem(
                path=(*_FIREWALL, "control_planes"),
                what=f"does not hold {machine.name} ({ip}), so etcd's members cannot reach each other",
                got=f"[{', '.join(map(str, planes))}]",
                fix="leave the key out, and each control plane's own address is let in",
            )
