"""Which machines announce addresses to which routers, over plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacks.site.reading.levels import SiteMachine, machines_of, taint_of, takes_pods
from stacks.site.reading.raw import items, mapping


def for_proxies(machines: Any) -> list[SiteMachine]:
    """Machines of `cluster.machines` that the gateway's proxies run on."""
    return [
        machine for machine in takes_pods(list(machines_of(machines))) if not machine.dead and not taint_of(machine)
    ]


def announcing(machines: Any, peers: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the peers by the machine that announces to them; no machine that is dead."""
    alive = [machine.name for machine in machines_of(machines) if not machine.dead]
    by_default = [machine.name for machine in for_proxies(machines)]
    result = dict[str, list[str]]()
    for name, peer in sorted(peers.items()):
        named = items(mapping(peer).get("nodes"))
        for node in [node for node in alive if node in named] if named else by_default:
            result.setdefault(node, []).append(str(name))
    return result
