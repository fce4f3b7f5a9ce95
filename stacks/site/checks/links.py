"""Links of each machine: which belong together, and whether the machine keeps the address that it is reached at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Problem, nearest, shown
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import address, at, items, mapping, number

# IPv6's least, which every network passes on; the kernel takes IPv6 off a smaller link.
_MTU_LEAST = 1280
_OF_ADDRESSES = ("node_address", "dhcp", "addresses", "routes")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Links that cannot work beside each other; each mistake once, however many machines inherit it."""
    reported: set[Problem] = set()
    for machine in machines_of(at(values, *MACHINES)):
        for problem in (*_address(machine), *_names(machine), *_bonds(machine), *_vlans(machine)):
            if problem not in reported:
                reported.add(problem)
                yield problem


def _address(machine: SiteMachine) -> Iterator[Problem]:
    """A machine that names a link has no DHCP by default (Talos 1.13), so one of its links must carry its address."""
    own = address(machine.keys.get("address"))
    members = _members(machine)
    named = [(kind, name, link) for kind, name, link in machine.links() if name not in members]
    holders = [(kind, name) for kind, name, link in named if link.get("node_address") is True]
    if len(holders) > 1:
        kind, name = holders[-1]
        yield Problem(
            path=machine.path(kind, name, "node_address"),
            what=f"puts the machine's address on a second link; {holders[0][1]} has it already",
            fix="take one of the two out",
        )
    carriers = holders or [
        (kind, name)
        for kind, name, link in named
        if link.get("dhcp") is True or own in map(address, items(link.get("addresses")))
    ]
    if own and not carriers and named and not any(_addressed(machine, member) for member in members):
        kind, name = min((kind, name) for kind, name, _ in named)
        yield Problem(
            path=machine.path(kind, name),
            what="and no other link carries the machine's own address, which would be lost with the installation",
            allowed="node_address: true, dhcp: true or that address on a link, bond or VLAN",
            fix=f"write node_address: true at {name}",
        )
    off = [next(_switched_off(machine, *carrier), None) for carrier in carriers]
    if off and off[-1] and all(off):
        yield Problem(
            path=machine.path(*off[-1], "up"),
            what="switches off the link of the machine's own address, which would be lost with the installation",
            got="false",
            fix="take it out",
        )
    for (kind, name), mtu in _too_small(machine).items():
        yield Problem(
            path=machine.path(kind, name, "mtu"),
            what=f"is less than {_MTU_LEAST}, IPv6's least, on the link that carries the packets of nodes and pods",
            got=f"{mtu:g}",
            allowed=f"{_MTU_LEAST} or more",
            fix=f"write {max([1500, *_mtus_on(machine, name)]):g}, or what the switches pass on",
        )


def _addressed(machine: SiteMachine, member: str) -> bool:
    link = mapping(at(machine.keys, "links", member))
    return any(link.get(key) for key in _OF_ADDRESSES)


def _below(machine: SiteMachine, kind: str, name: str) -> Iterator[tuple[str, str]]:
    """The link, and what it is on if it is a VLAN."""
    yield kind, name
    parent = at(machine.keys, kind, name, "parent")
    yield from ((kind, name) for kind, name, _ in machine.links() if kind != "vlans" and name == parent)


def _switched_off(machine: SiteMachine, kind: str, name: str) -> Iterator[tuple[str, str]]:
    yield from (lower for lower in _below(machine, kind, name) if at(machine.keys, *lower, "up") is False)


def _too_small(machine: SiteMachine) -> dict[tuple[str, str], float]:
    """The link that decides how large packets of the machine's own address are, if that is too small."""
    for holder in [(kind, name) for kind, name, link in machine.links() if link.get("node_address") is True]:
        for lower in _below(machine, *holder):
            mtu = number(at(machine.keys, *lower, "mtu"))
            if mtu is not None:
                return {lower: mtu} if mtu < _MTU_LEAST else {}
    return {}


def _mtus_on(machine: SiteMachine, name: str) -> Iterator[float]:
    """Sizes of the VLANs on a link."""
    for _, _, link in machine.links():
        mtu = number(link.get("mtu"))
        if mtu is not None and link.get("parent") == name:
            yield mtu


def _members(machine: SiteMachine) -> dict[str, str]:
    """Links of bonds, and their bond."""
    bonds = mapping(machine.keys.get("bonds"))
    return {str(member): str(name) for name, bond in bonds.items() for member in items(mapping(bond).get("links"))}


def _names(machine: SiteMachine) -> Iterator[Problem]:
    """One name is one link (Talos 1.13 refuses two documents of it), and what is in a bond has no address."""
    kinds: dict[str, str] = {}
    for kind, name, _ in reversed(list(machine.links())):
        if name in kinds:
            yield Problem(
                path=machine.path(kind, name),
                what=f"is the name of one of the {kinds[name]} already",
                fix=f"take it out, and write its keys at {kinds[name]}.{name}",
            )
        kinds.setdefault(name, kind)
    for member, bond in _members(machine).items():
        for key in _OF_ADDRESSES:
            if at(machine.keys, "links", member, key):
                yield Problem(
                    path=machine.path("links", member, key),
                    what=f"is for {bond}: a link in a bond has no address of its own",
                    fix=f"move it to bonds.{bond}",
                )


def _bonds(machine: SiteMachine) -> Iterator[Problem]:
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


def _vlans(machine: SiteMachine) -> Iterator[Problem]:
    vlans, bonds = mapping(machine.keys.get("vlans")), mapping(machine.keys.get("bonds"))
    links = mapping(machine.keys.get("links"))
    members = _members(machine)
    names = [str(name) for name in (*links, *bonds, *mapping(machine.keys.get("link_aliases")))]
    small = {name for _, name in _too_small(machine)}
    seen: dict[tuple[Any, Any], str] = {}
    for name, vlan in vlans.items():
        parent, number_ = mapping(vlan).get("parent"), mapping(vlan).get("vlan_id")
        if not isinstance(parent, str):
            continue
        near = nearest(parent, [other for other in names if other not in members])
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
        if own is not None and parent in names and own > carrier and parent not in small:
            yield Problem(
                path=machine.path("vlans", str(name), "mtu"),
                what=f"is more than {parent} carries, {carrier:g}",
                got=f"{own:g}",
                fix=f"write {carrier:g} or less, or raise the mtu of {parent}",
            )
