"""Links of each machine: which belong together, and whether the machine keeps the address that it is reached at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacks.loading.levels import MACHINES, Machine, machines_of
from stacks.loading.problems import Problem, nearest, shown
from stacks.loading.raw import address, at, items, mapping, number

_KINDS = ("links", "bonds", "vlans")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Links that cannot work beside each other; each mistake once, however many machines inherit it."""
    told: set[Problem] = set()
    for machine in machines_of(at(values, *MACHINES)):
        for problem in (*_address(machine), *_bonds(machine), *_vlans(machine)):
            if problem not in told:
                told.add(problem)
                yield problem


def _address(machine: Machine) -> Iterator[Problem]:
    """A machine that names a link has no DHCP by default (Talos 1.13), so one of its links must carry its address."""
    own = address(machine.keys.get("address"))
    named = [
        (kind, str(name), mapping(link)) for kind in _KINDS for name, link in mapping(machine.keys.get(kind)).items()
    ]
    holders = [(kind, name) for kind, name, link in named if link.get("node_address") is True]
    if len(holders) > 1:
        kind, name = holders[-1]
        yield Problem(
            path=machine.path(kind, name, "node_address"),
            what=f"puts the machine's address on a second link; {holders[0][1]} has it already",
            fix="take one of the two out",
        )
    addressed = any(
        link.get("dhcp") is True or own in map(address, items(link.get("addresses"))) for _, _, link in named
    )
    members = {str(member) for _, _, link in named for member in items(link.get("links"))}
    if own and holders == [] and not addressed and any(name not in members for _, name, _ in named):
        kind, name = min((kind, name) for kind, name, _ in named if name not in members)
        yield Problem(
            path=machine.path(kind, name),
            what="and no other link carries the machine's own address, which would be lost with the installation",
            allowed="node_address: true, dhcp: true or that address on a link, bond or VLAN",
            fix=f"write node_address: true at {name}",
        )


def _bonds(machine: Machine) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name, bond in mapping(machine.keys.get("bonds")).items():
        for member in items(mapping(bond).get("links")):
            if member in taken and taken[member] != name:
                yield Problem(
                    path=machine.path("bonds", str(name), "links"),
                    what=f"names {member}, which is in {taken[member]} already",
                    fix="take it out of one of the two",
                )
            taken[str(member)] = str(name)


def _vlans(machine: Machine) -> Iterator[Problem]:
    vlans, bonds = mapping(machine.keys.get("vlans")), mapping(machine.keys.get("bonds"))
    links = mapping(machine.keys.get("links"))
    members = {str(member) for bond in bonds.values() for member in items(mapping(bond).get("links"))}
    names = [str(name) for name in (*links, *bonds, *mapping(machine.keys.get("link_aliases")))]
    seen: dict[tuple[Any, Any], str] = {}
    for name, vlan in vlans.items():
        parent, number_ = mapping(vlan).get("parent"), mapping(vlan).get("vlan_id")
        if not isinstance(parent, str):
            continue
        near = nearest(parent, [one for one in names if one not in members])
        if parent in members or (parent not in names and near):
            yield Problem(
                path=machine.path("vlans", str(name), "parent"),
                what="is a member of a bond" if parent in members else "is no link or bond of the machine",
                got=shown(parent),
                near=near,
                fix=f"write {near}" if near else "name the bond",
            )
        if (parent, number_) in seen:
            yield Problem(
                path=machine.path("vlans", str(name), "vlan_id"),
                what=f"{number_} on {parent} is {seen[parent, number_]} already",
                fix="give one of the two another number",
            )
        seen.setdefault((parent, number_), str(name))
        own = number(mapping(vlan).get("mtu"))
        carrier = number(mapping(links.get(parent) or bonds.get(parent)).get("mtu")) or 1500
        if own is not None and parent in names and own > carrier:
            yield Problem(
                path=machine.path("vlans", str(name), "mtu"),
                what=f"is more than {parent} carries, {carrier:g}",
                got=f"{own:g}",
                fix=f"write {carrier:g} or less, or raise the mtu of {parent}",
            )
