"""What must agree between the keys of `cluster.machines`; works on raw values, so it also sees a site that is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
# What Kubernetes' controller manager gives each node.
_POD_PREFIX = 24

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Disagreement:
    """A mistake: the key it is at, below `cluster.machines`, and what, what is allowed, how to mend it."""

    path: tuple[str, ...]
    what: str


def plain_host_name(name: str) -> str:
    """The name, if it is a host name of at most 40 characters; else ValueError."""
    if not _HOST_NAME.fullmatch(name):
        raise ValueError("this name is not 1 to 40 lower-case letters, digits and inner dashes, as host names are")
    return name


def warnings(machines: Any) -> list[str]:
    """What works, and is not wise, one line each."""
    planes = sorted(name for name, node in machines.nodes.items() if node.role == "controlplane")
    found = []
    if len(planes) % 2 == 0:
        found.append(
            f"{len(planes)} control planes ({', '.join(planes)}) bear no more failures than {len(planes) - 1}: etcd "
            "needs more than half of them; fix: have an odd number"
        )
    host = urlsplit(machines.endpoint).hostname
    if len(planes) > 1 and any(machines.nodes[name].address == host for name in planes):
        found.append(
            f"endpoint {machines.endpoint} is one of {len(planes)} control planes, and goes with it; fix: name a VIP "
            "or a load balancer"
        )
    if not any(node.role == "worker" or node.schedulable for node in machines.nodes.values()):
        found.append(
            "no node takes pods that need no GPU, as gateway, pickers and controllers are: HGX nodes and control planes"
            " keep them off; fix: add nodes of the role worker, two or more, or make control planes schedulable"
        )
    return found


def disagreements(values: Any) -> Iterator[Disagreement]:
    """Everything that does not go together, as far as the values can be understood."""
    if not isinstance(values, Mapping):
        return
    nodes = {str(name): each for name, each in _mapping(values.get("nodes")).items() if isinstance(each, Mapping)}
    networks = _mapping(values.get("networks"))
    yield from _roles(nodes)
    yield from _addresses(nodes, networks)
    yield from _networks(nodes, networks)
    yield from _endpoint(values, nodes, networks)
    for name, node in sorted(nodes.items()):
        if node.get("schedulable") and node.get("role") in {"worker", "hgx"}:
            yield Disagreement(("nodes", name, "schedulable"), "is for control planes; fix: leave it out, workers are")


def _roles(nodes: Mapping[str, Any]) -> Iterator[Disagreement]:
    if nodes and not any(node.get("role") == "controlplane" for node in nodes.values()):
        yield Disagreement(("nodes",), "no control plane; allowed: one or more, best three; fix: give a node that role")


def _addresses(nodes: Mapping[str, Any], networks: Mapping[str, Any]) -> Iterator[Disagreement]:
    subnets = [each for each in map(_network, _list(networks.get("nodes"))) if each is not None]
    holders: defaultdict[Address, list[str]] = defaultdict(list)
    for name, node in sorted(nodes.items()):
        if "address" not in node:
            continue
        address = _address(node["address"])
        path = ("nodes", name, "address")
        if address is None:
            yield Disagreement(path, f"got '{node['address']}', allowed: an address such as 10.0.0.11")
            continue
        holders[address].append(name)
        if subnets and not any(address in subnet for subnet in subnets):
            listed = ", ".join(map(str, subnets))
            yield Disagreement(path, f"got {address}, outside of networks.nodes ({listed}); fix: correct one of them")
    for address, names in holders.items():
        if len(names) > 1:
            yield Disagreement(
                ("nodes", names[-1], "address"), f"{address} is also that of {', '.join(names[:-1])}; fix: change one"
            )
    vip = _address(networks.get("vip"))
    if vip is not None and vip in holders:
        yield Disagreement(
            ("networks", "vip"), f"{vip} is the address of {holders[vip][0]}; fix: give the VIP an address of its own"
        )
    if networks.get("vip") and not networks.get("vip_link"):
        yield Disagreement(("networks", "vip_link"), "missing; fix: name the control planes' link that carries the VIP")


def _networks(nodes: Mapping[str, Any], networks: Mapping[str, Any]) -> Iterator[Disagreement]:
    named = [("pods", networks.get("pods", "10.244.0.0/16")), ("services", networks.get("services", "10.96.0.0/12"))]
    named += [("nodes", each) for each in _list(networks.get("nodes"))]
    known: list[tuple[str, Network]] = []
    for name, text in named:
        network = _network(text)
        if network is None:
            yield Disagreement(("networks", name), f"got '{text}', allowed: a subnet such as 10.5.0.0/24")
            continue
        for other, there in known:
            if other != name and network.version == there.version and network.overlaps(there):
                yield Disagreement(("networks", name), f"{network} overlaps {other} ({there}); fix: move one of them")
        known.append((name, network))
    pods = dict(known).get("pods")
    if pods is not None and pods.version == 4 and len(nodes) > 2 ** max(0, _POD_PREFIX - pods.prefixlen):
        yield Disagreement(
            ("networks", "pods"),
            f"{pods} has no /{_POD_PREFIX} for each of {len(nodes)} nodes; fix: give pods a larger subnet",
        )


def _endpoint(
    values: Mapping[str, Any], nodes: Mapping[str, Any], networks: Mapping[str, Any]
) -> Iterator[Disagreement]:
    text = values.get("endpoint")
    if not isinstance(text, str):
        return
    try:
        split = urlsplit(text)
        host, valid = split.hostname, split.scheme == "https" and split.port is not None
    except ValueError:
        host, valid = None, False
    if not host or not valid:
        yield Disagreement(("endpoint",), f"got '{text}', allowed: https://HOST:PORT, usually port 6443")
        return
    address = _address(host)
    others = {_address(node.get("address")) for node in nodes.values() if node.get("role") in ("worker", "hgx")}
    if address is not None and address in others:
        yield Disagreement(("endpoint",), f"{address} is a worker's address; fix: name the VIP or a control plane")
    vip = _address(networks.get("vip"))
    if vip is not None and address is not None and address != vip:
        yield Disagreement(("endpoint",), f"{address} is not networks.vip ({vip}); fix: name the VIP, or leave vip out")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _address(value: Any) -> Address | None:
    try:
        return ipaddress.ip_address(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _network(value: Any) -> Network | None:
    try:
        return ipaddress.ip_network(value) if isinstance(value, str) else None
    except ValueError:
        return None
