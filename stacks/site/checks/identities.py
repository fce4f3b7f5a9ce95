"""What there is once: keys of machines, serial numbers of disks, addresses and names of network cards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, shown
from stacks.site.checks.selectors import canonical
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, items, mapping

# Properties of a disk that no other disk has.
_OF_ONE_DISK = ("serial", "uuid", "wwid")
_NAMES_ONE_DISK = re.compile(
    rf"disk\.({'|'.join(_OF_ONE_DISK)}) *== *[\"']|[\"'] *== *disk\.({'|'.join(_OF_ONE_DISK)})"
)
# Names by place and firmware (systemd.net-naming-scheme), which the kernel does not give itself.
_PREDICTABLE = re.compile(r"en[opsxP][0-9a-zA-Z]*|ib[opsxP][0-9a-zA-Z]*")
_OLD_NAMES = "net.ifnames=0"


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What two machines, or two links of one, cannot both have; each mistake once."""
    machines = mapping(at(values, *MACHINES))
    nodes = list(machines_of(machines))
    reported: set[Path] = set()
    for problem in (*_shared(nodes), *_longhorn(machines, nodes), *_aliases(nodes), *_renamed(nodes)):
        if problem.path not in reported:
            reported.add(problem.path)
            yield problem


def _shared(nodes: list[SiteMachine]) -> Iterator[Problem]:
    """The same at two machines, in a node or in what both inherit."""
    holders: dict[tuple[str, Any], str] = {}
    for machine in nodes:
        for kind, keys, value in _own(machine):
            if not isinstance(value, str) or "*" in value or "?" in value:
                continue
            first = holders.setdefault((kind, value.casefold()), machine.name)
            if first != machine.name:
                yield Problem(
                    path=machine.path(*keys),
                    what=f"is {first}'s too, and {kind} is of one machine alone",
                    got=shown(value),
                    fix="write it at the one node that has it",
                )


def _own(machine: SiteMachine) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """What it is, where it is written, and its value."""
    yield "a fingerprint", ("fingerprint",), machine.keys.get("fingerprint")
    for name in _OF_ONE_DISK:
        yield f"a disk's {name}", ("install_disk", name), at(machine.keys, "install_disk", name)
    for kind, name, link in machine.links():
        # A VLAN may have the address of what it is on.
        if kind != "vlans":
            yield "a hardware address", (kind, name, "hardware_addr"), link.get("hardware_addr")


def _longhorn(machines: Mapping[str, Any], nodes: list[SiteMachine]) -> Iterator[Problem]:
    gpu_nodes = [machine.name for machine in nodes if machine.role == "hgx"]
    for name, disk in sorted(mapping(at(machines, "hgx", "storage", "disks")).items()):
        selector = mapping(disk).get("selector")
        if (
            len(gpu_nodes) > 1
            and isinstance(selector, str)
            and "||" not in selector
            and _NAMES_ONE_DISK.search(selector)
        ):
            yield Problem(
                path=(*MACHINES, "hgx", "storage", "disks", str(name), "selector"),
                what=f"names one disk in the world, and {len(gpu_nodes)} nodes look for it ({', '.join(gpu_nodes)})",
                got=shown(selector),
                fix="name the disk by what it has on each node, such as its bus_path",
            )


def _aliases(nodes: list[SiteMachine]) -> Iterator[Problem]:
    """Two aliases of one link, of which Talos gives one; an alias that is the name of another link."""
    for machine in nodes:
        seen: dict[str, str] = {}
        members = {
            str(member): str(bond)
            for bond, keys in mapping(machine.keys.get("bonds")).items()
            for member in items(mapping(keys).get("links"))
        }
        for name, selector in mapping(machine.keys.get("link_aliases")).items():
            if not isinstance(selector, str):
                continue
            path, other = machine.path("link_aliases", str(name)), seen.setdefault(canonical(selector), str(name))
            if other != name:
                yield Problem(
                    path=path,
                    what=f"has the condition of {other}, so both would be one link",
                    got=shown(selector),
                    fix="name another link, for example by its bus_path",
                )
            elif name in members and _PREDICTABLE.fullmatch(str(name)):
                yield Problem(
                    path=path,
                    what=f"is the name of a link of {members[str(name)]}, so that bond would take the aliased link",
                    fix="choose a name that no link has",
                )


def _renamed(nodes: list[SiteMachine]) -> Iterator[Problem]:
    """Links that the kernel would call eth0, eth1 and so on."""
    for machine in nodes:
        arguments = items(machine.keys.get("kernel_args"))
        aliases = mapping(machine.keys.get("link_aliases"))
        used = {name for kind, name, _ in machine.links() if kind == "links"}
        used |= {
            str(member)
            for bond in mapping(machine.keys.get("bonds")).values()
            for member in items(mapping(bond).get("links"))
        }
        named = sorted(name for name in used if name not in aliases and _PREDICTABLE.fullmatch(name))
        if _OLD_NAMES in arguments and named:
            yield Problem(
                path=machine.path("kernel_args", str(arguments.index(_OLD_NAMES))),
                what=f"leaves no link called {', '.join(named)}, so the machine loses its network",
                got=shown(_OLD_NAMES),
                fix="take it out",
            )
