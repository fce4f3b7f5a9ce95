"""The machines of a new site from a few facts: how many, in which network, on which link and disk."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sitectl.shell.errors import Exit, SitectlError
from stacks.site.loader import UNFINISHED

# Places in the network: the VIP, then each kind of machine from a round number on.
_VIP, _FIRST, _STEP = 10, 11, 10
_GATEWAY_NODES = 2
_MOST = 9999
# The platform's own default first, then what does not overlap with 10.0.0.0/8.
_PODS = ("10.244.0.0/16", "172.20.0.0/16")
_SERVICES = ("10.96.0.0/12", "172.24.0.0/16")


@dataclass(frozen=True, kw_only=True)
class Rack:
    """The options of `init` for machines."""

    control_planes: int
    hgx: int
    gateway_nodes: int
    network: ipaddress.IPv4Network
    router: str = ""
    vip: str = ""
    links: Sequence[str] = ()
    resolvers: Sequence[str] = ()
    time_servers: Sequence[str] = ()


def counts(text: str) -> tuple[int, int]:
    """(control planes, HGX nodes) of `3+6`. Raises SitectlError."""
    match = re.fullmatch(r"(\d{1,4})\+(\d{1,4})", text)
    control_planes, hgx = (int(match[1]), int(match[2])) if match else (0, 0)
    if not control_planes or not hgx:
        raise SitectlError(
            "--machines: not the number of control planes and of HGX nodes",
            got=text,
            allowed=f"such as 3+6: three control planes and six HGX nodes; from 1+1 to {_MOST}+{_MOST}",
            fix="--machines 3+6",
            status=Exit.USAGE,
        )
    return control_planes, hgx


def gateway_nodes(count: int | None) -> int:
    """Machines without GPUs. Raises SitectlError."""
    if count is None:
        return _GATEWAY_NODES
    if not 0 <= count <= _MOST:
        raise SitectlError(
            "--gateway-nodes: not a number of machines",
            got=str(count),
            allowed=f"0 to {_MOST}",
            fix="--gateway-nodes 2, or 0 for control planes that run the gateway",
            status=Exit.USAGE,
        )
    return count


def network(text: str | None) -> ipaddress.IPv4Network:
    """The machines' subnet. Raises SitectlError."""
    try:
        return ipaddress.IPv4Network(text or "")
    except ValueError as error:
        raise SitectlError(
            "--network: the machines' subnet is needed with --machines" if not text else f"--network: {error}",
            got=text or "",
            allowed="an IPv4 subnet with its prefix length; for IPv6, edit the file that this writes",
            fix="--network 10.1.0.0/24",
            status=Exit.USAGE,
        ) from None


def machines(rack: Rack) -> dict[str, Any]:
    """The section `cluster.machines`. Raises SitectlError where the network is too small."""
    kinds = {"cp": rack.control_planes, "infra": rack.gateway_nodes, "hgx": rack.hgx}
    first, place = {}, _FIRST
    for name, count in kinds.items():
        first[name] = place
        place += -(-count // _STEP) * _STEP
    if rack.network.num_addresses <= place:
        bits = max(4, place.bit_length())
        raise SitectlError(
            f"--network: {rack.network} has no room for {sum(kinds.values())} machines",
            got=f"{rack.network.num_addresses} addresses",
            allowed=f"at least {2**bits}, as each kind of machine begins at a round number",
            fix=f"--network with a prefix length of at most {32 - bits}",
            status=Exit.USAGE,
        )

    def address(number: int) -> str:
        return str(rack.network.network_address + number)

    roles = {"cp": "controlplane", "infra": "worker", "hgx": "hgx"}
    # Something has to run the gateway and the pickers, which keep off the HGX nodes.
    schedulable = {"schedulable": True} if not rack.gateway_nodes else {}
    nodes = {
        f"{name}-{number + 1}": {"role": roles[name], "address": address(first[name] + number)}
        | (schedulable if name == "cp" else {})
        for name, count in kinds.items()
        for number in range(count)
    }
    bonded = len(rack.links) > 1
    link = "bond0" if bonded else (rack.links or ("eno1",))[0]
    settings: dict[str, Any] = {"node_address": True, "routes": [{"gateway": rack.router or address(1)}]}
    if bonded:
        bond = {"links": list(rack.links), "bond_mode": "802.3ad", "lacp_rate": "fast", "xmit_hash_policy": "layer3+4"}
        settings = {**settings, **bond, "miimon_ms": 100, "updelay_ms": 200, "downdelay_ms": 200}
    vip = rack.vip or address(_VIP)
    plan = {
        "nodes": [str(rack.network)],
        "pods": _without_overlap(rack.network, *_PODS),
        "services": _without_overlap(rack.network, *_SERVICES),
    }
    return {
        "endpoint": f"https://{vip}:6443",
        "networks": plan | {"vip": vip, "vip_link": link},
        "bonds" if bonded else "links": {link: settings},
        "install_disk": {"size": "<= 2TB"},
        # Open ones are not known to work on HGX boards with Talos.
        "hgx": {"modules": "proprietary"},
        **({"resolvers": list(rack.resolvers)} if rack.resolvers else {}),
        **({"time_servers": list(rack.time_servers)} if rack.time_servers else {}),
        "nodes": nodes,
    }


def _without_overlap(machines: ipaddress.IPv4Network, *choices: str) -> str:
    """The first of these subnets that the machines are not in; validation refuses the last one if they all are."""
    apart = (choice for choice in choices if not machines.overlaps(ipaddress.IPv4Network(choice)))
    return next(apart, choices[-1])


def notes(rack: Rack) -> dict[str, str]:
    """What a person has to look up, by the key that it belongs to; nothing for what an option named."""
    base = "cluster.machines"
    carrier = f"{base}.{'bonds' if len(rack.links) > 1 else 'links'}"
    texts = {
        f"{base}.install_disk": f"{UNFINISHED}: what matches the boot disk of each machine and no other disk; "
        "a role or a node may name its own.",
        f"{base}.nodes": f"{UNFINISHED}: the address that each machine has, in maintenance mode too: "
        "a DHCP reservation, or ip= on the kernel's command line.",
    }
    if not rack.vip:
        texts[f"{base}.networks.vip"] = (
            f"{UNFINISHED}: an address of this network that nothing else has; also in endpoint."
        )
    if not rack.links:
        texts[carrier] = f"{UNFINISHED}: the link with the node's address; its name is on the machine's console."
    if not rack.router:
        texts[f"{carrier}.<name>.routes"] = f"{UNFINISHED}: the router of this network; the first address is a guess."
    return texts
