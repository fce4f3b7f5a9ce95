"""Keys of one machine from the cluster, its role and the node itself; the most specific place wins, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floor.problems import Path
from stacks.site.reading.raw import mapping

MACHINES: Path = ("cluster", "machines")
# Where a key of a machine may be written, as the beginning of a pattern below `cluster.machines`.
LEVELS = ("", "roles.<name>.", "nodes.<name>.")
_KEEPS_PODS_OFF = frozenset({"NoSchedule", "NoExecute"})
_LINK_KINDS = ("links", "bonds", "vlans")
# Keys of `cluster.machines` that no node inherits.
_OF_THE_CLUSTER = frozenset({"nodes", "roles", "networks", "hgx", "firewall", "registries"})


_Level = tuple[Path, Mapping[str, Any]]


@dataclass(frozen=True)
class SiteMachine:
    """One machine: its name, its role, and what all levels set for it together."""

    name: str
    role: str
    dead: bool
    keys: Mapping[str, Any]
    _levels: tuple[_Level, _Level, _Level]

    def links(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Kind, name and keys of every link, bond and VLAN."""
        for kind in _LINK_KINDS:
            for name, link in mapping(self.keys.get(kind)).items():
                yield kind, str(name), mapping(link)

    def path(self, *keys: str) -> Path:
        """Where the site wrote this key: at the most exact level that holds it, or as much of it as any level has.

        A key that is nowhere belongs to the machine's role if the site sets anything of that, or to all machines.
        """
        for size in range(len(keys), 0, -1):
            for path, level in self._levels:
                if _has(level, keys[:size]):
                    return (*path, *keys)
        _, (role, of_role), (every, _) = self._levels
        return (*(role if of_role else every), *keys)


def machines_of(machines: Any) -> Iterator[SiteMachine]:
    """Every machine of `cluster.machines` by name, as far as the values can be understood."""
    machines = mapping(machines)
    for name, node in sorted(mapping(machines.get("nodes")).items(), key=lambda item: str(item[0])):
        if not isinstance(node, Mapping):
            continue
        role = str(node.get("role"))
        levels = (
            ((*MACHINES, "nodes", str(name)), node),
            ((*MACHINES, "roles", role), mapping(mapping(machines.get("roles")).get(role))),
            (MACHINES, {key: value for key, value in machines.items() if key not in _OF_THE_CLUSTER}),
        )
        keys: Mapping[str, Any] = {}
        for _, level in reversed(levels):
            keys = joined(keys, level)
        yield SiteMachine(str(name), role, node.get("dead") is True, keys, levels)


def takes_pods(nodes: Sequence[SiteMachine]) -> list[SiteMachine]:
    """Machines for pods that need no GPU, whatever their taints are."""
    return [machine for machine in nodes if machine.role == "worker" or machine.keys.get("schedulable") is True]


def taint_of(machine: SiteMachine) -> str:
    """Key of a taint that keeps the platform's pods off the machine; empty where there is none."""
    for key, value in mapping(machine.keys.get("taints")).items():
        if str(value).rpartition(":")[2] in _KEEPS_PODS_OFF:
            return str(key)
    return ""


def joined(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of two levels: the nearer one wins, and sections are joined key by key."""
    result = dict(below)
    for key, value in above.items():
        inner = result.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = joined(inner, value)
        result[key] = value
    return result


def _has(values: Any, keys: Path) -> bool:
    for key in keys:
        if isinstance(values, list) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        elif isinstance(values, Mapping) and key in values:
            values = values[key]
        else:
            return False
    return True
