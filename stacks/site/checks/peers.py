"""Links of machines of one role beside each other: a rail or VLAN with ends in different networks joins nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floor.counts import listed
from floor.problems import Problem
from stacks.site.checks.subnets import inner, of_nodes
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import Network, at, interface, items, mapping, number

# Fewer machines are no majority: which of them is wrong would be a guess.
_FEWEST_PEERS = 2
_ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, kw_only=True)
class _End:
    """One machine's end of a link, a bond or a VLAN, with the subnets of its static addresses."""

    machine: SiteMachine
    kind: str
    name: str
    keys: Mapping[str, Any]
    subnets: frozenset[Network]

    @property
    def ends_there(self) -> bool:
        """Whether its addresses are all that it reaches: a route or a DHCP server may lead it further."""
        return bool(self.subnets) and not items(self.keys.get("routes")) and self.keys.get("dhcp") is not True

    def is_another_card(self, subnet: Network) -> bool:
        """Whether the kernel calls another card so on this machine, which is in the subnet by another link."""
        named = self.kind == "links" and self.name not in mapping(self.machine.keys.get("link_aliases"))
        texts = [text for _, _, link in self.machine.links() for text in items(link.get("addresses"))]
        return named and subnet in map(interface, texts)

    @property
    def zone(self) -> Any:
        """Rack and place of the machine, if the site has them."""
        return mapping(self.machine.keys.get("labels")).get(_ZONE)

    def problem(self, key: Sequence[str], what: str, got: str, fix: str) -> Problem:
        return Problem(path=self.machine.path(self.kind, self.name, *key), what=what, got=got, fix=fix)


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Ends that do not fit those of their peers, as far as the values can be understood."""
    machines = mapping(at(values, *MACHINES))
    networks = mapping(machines.get("networks"))
    taken = [*of_nodes(networks), *(subnet for _, subnet in inner(networks))]
    ends: dict[tuple[str, str, str], list[_End]] = {}
    for machine in machines_of(machines):
        for kind, name, keys in [] if machine.dead else machine.links():
            static = map(interface, items(keys.get("addresses")))
            subnets = frozenset(subnet for subnet in static if subnet is not None)
            # Addresses of nodes, pods and Services are looked at by themselves.
            if not any(own.overlaps(subnet) for own in subnets for subnet in taken if own.version == subnet.version):
                end = _End(machine=machine, kind=kind, name=name, keys=keys, subnets=subnets)
                ends.setdefault((machine.role, kind, name), []).append(end)
    shared = {key: subnet for key, peers in ends.items() if (subnet := _shared(peers))}
    for key, subnet in shared.items():
        others = {other: name for (role, _, name), other in shared.items() if role == key[0] and name != key[2]}
        there = [end for end in ends[key] if subnet in end.subnets]
        for end in ends[key]:
            if end in there:
                yield from _settings(end, there)
            elif end.ends_there and not end.is_another_card(subnet):
                alone = not any(end.subnets & peer.subnets for peer in ends[key] if peer is not end)
                yield from _of_another_subnet(end, subnet, there, others, alone=alone)


def _shared(peers: Sequence[_End]) -> Network | None:
    """The subnet that most of them are in."""
    counts = Counter(subnet for peer in peers for subnet in peer.subnets)
    subnet, count = counts.most_common(1)[0] if counts else (None, 0)
    return subnet if count >= _FEWEST_PEERS and 2 * count > len(peers) else None


def _of_another_subnet(
    end: _End, subnet: Network, there: Sequence[_End], others: Mapping[Network, str], *, alone: bool
) -> Iterator[Problem]:
    """One that is in another subnet than its peers, and has no route to theirs."""
    own = min(end.subnets, key=str)
    crossed = f", the subnet of {others[own]}" if own in others else ""
    # What is there, a machine of another row may have for itself: a storage server, or machines beside it.
    elsewhere = not alone or len(there) <= _FEWEST_PEERS or end.zone not in {None, *(peer.zone for peer in there)}
    may_be = not crossed and not (own.version == subnet.version and own.overlaps(subnet))
    if may_be and elsewhere:
        return
    names = listed(sorted(peer.machine.name for peer in there))
    fix = f"write an address of {subnet} with its prefix length"
    yield end.problem(
        ("addresses",),
        f"of {end.machine.name} are in {own}{crossed}, and those of {names} in {subnet}, to which {end.name} has no "
        "route",
        str(own),
        f"{fix}, or give {end.name} a route to {subnet}, or the machine a {_ZONE} of its own" if may_be else fix,
    )


def _settings(end: _End, peers: Sequence[_End]) -> Iterator[Problem]:
    """A number that all others in the subnet have otherwise: a VLAN of its own, or packets that they drop."""
    for key in ("vlan_id", "mtu"):
        counts = Counter(number(peer.keys.get(key)) for peer in peers)
        most, count = counts.most_common(1)[0]
        own = number(end.keys.get(key))
        if own == most or most is None or own is None or count < _FEWEST_PEERS or counts[own] > 1:
            continue
        same = listed(sorted(p.machine.name for p in peers if number(p.keys.get(key)) == most))
        yield end.problem(
            (key,),
            f"of {end.machine.name} is another one than that of {same}, which are in the same subnet",
            f"{own:g}",
            f"write {most:g}, or the same number for all of them",
        )
