"""From what Talos would refuse in a machine's config to the key under which the site set it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floor.problems import Path, Problem
from stacks.site.reading.levels import MACHINES, Machine, machines_of
from stacks.site.reading.raw import address, at, items, mapping
from talos import checks, document

# Kind of document -> the key that it is made of; {} is the document's own name.
_DOCUMENTS: Mapping[str, str] = {
    "LinkAliasConfig": "link_aliases.{}",
    "LinkConfig": "links.{}",
    "BondConfig": "bonds.{}",
    "VLANConfig": "vlans.{}",
    "EthernetConfig": "ethernet.{}",
    "StaticHostConfig": "static_hosts.{}",
    "VolumeConfig": "system_volumes.{}",
    "UserVolumeConfig": "volumes.{}",
    "RawVolumeConfig": "raw_volumes.{}",
}
# The same for documents that are made of keys of the cluster alone.
_OF_THE_CLUSTER: Mapping[str, str] = {
    "ResolverConfig": "resolvers",
    "TimeSyncConfig": "time_servers",
    "WatchdogTimerConfig": "watchdog_s",
    "KmsgLogConfig": "kernel_log",
    "RegistryMirrorConfig": "registries.mirrors.{}",
    "RegistryAuthConfig": "registries.auth.{}",
    "RegistryTLSConfig": "registries.tls.{}",
    "TrustedRootsConfig": "trusted_roots.{}",
    "Layer2VIPConfig": "networks.vip",
    "NetworkRuleConfig": "firewall",
    "NetworkDefaultActionConfig": "firewall",
}
# Field of the v1alpha1 document -> key of a machine, and of the cluster.
_FIELDS: Mapping[str, str] = {
    "machine.install.disk_selector": "install_disk",
    "machine.install.disk": "install_disk",
    "machine.sysctls": "sysctls",
    "machine.sysfs": "sysfs",
    "machine.kernel_modules": "kernel_modules",
    "machine.node_labels": "labels",
    "machine.node_annotations": "annotations",
    "machine.node_taints": "taints",
    "machine.cert_sans": "cert_sans",
    "machine.kubelet.extra_config": "kubelet_config",
    "machine.kubelet": "kubelet_config",
}
_FIELDS_OF_THE_CLUSTER: Mapping[str, str] = {
    "machine.logging": "log_destination",
    "cluster.endpoint": "endpoint",
    "cluster.cluster_name": "",
    "cluster.network.dns_domain": "networks.dns_domain",
    "cluster.network.pod_subnets": "networks.pods",
    "cluster.network.service_subnets": "networks.services",
    "cluster.etcd.advertised_subnets": "networks.nodes",
    "cluster.api_server": "api_server_sans",
    "machine.kubelet.node_ip_subnets": "networks.nodes",
}
# Firewall rule -> the key that its ports or subnets come from.
_RULES = {"load-balancers": "load_balancer_ports", "etcd": "control_planes"}
# Keys of which each entry is checked by itself.
_ENTRIES = {"labels": checks.labels, "annotations": checks.node_annotations, "taints": checks.taints}
_MOST_NAMES = 4


@dataclass(frozen=True)
class Refused:
    """A problem of one machine's config, or of the cluster's where `node` is empty; `where` begins at the document."""

    node: str
    problem: document.Problem


def problems(refused: Iterable[Refused], values: Mapping[str, Any]) -> Iterator[Problem]:
    """Each mistake once, at its key, with the machines that inherit it where it is not one machine's own."""
    machines = {machine.name: machine for machine in machines_of(at(values, *MACHINES))}
    grouped: dict[tuple[Path, document.Problem], list[str]] = {}
    for each in refused:
        machine = machines.get(each.node)
        path = _of_machine(each.problem, machine) if machine else _of_cluster(each.problem, machines)
        bare = document.Problem(
            what=each.problem.what,
            got=each.problem.got,
            allowed=each.problem.allowed,
            fix=_in_own_words(each.problem.fix, path),
        )
        entries = list(_wrong_entries(machine, path, bare)) if machine else []
        for where, problem in entries or [(path, bare)]:
            grouped.setdefault((where, problem), []).append(each.node)
    for (path, problem), nodes in grouped.items():
        shared = path[:3] != (*MACHINES, "nodes") and any(nodes)
        yield Problem(
            path=path,
            what=problem.what + (f" ({_some(nodes)})" if shared and len(set(nodes)) < len(machines) else ""),
            got=problem.got,
            allowed=problem.allowed,
            fix=problem.fix,
        )


def _in_own_words(fix: str, path: Path) -> str:
    """A fix that names Talos's field, with the site's key in its place."""
    key = ".".join(path[-2:] if path and path[-1].isdecimal() else path[-1:])
    return re.sub(r"^give \w+ a value that is allowed$", f"give {key} a value that is allowed", fix)


def _wrong_entries(machine: Machine, path: Path, problem: document.Problem) -> Iterator[tuple[Path, document.Problem]]:
    """The wrong ones of a machine's labels, annotations or taints, each where the site wrote it."""
    key = path[-1] if path else ""
    for name, value in mapping(machine.keys.get(key)).items() if key in _ENTRIES else ():
        if _ENTRIES[key]({str(name): value}):
            own = {"got": f"'{name}: {value}'", "fix": "correct its name or its value"}
            yield machine.path(key, str(name)), replace(problem, **own)


def _of_machine(problem: document.Problem, machine: Machine) -> Path:
    head, _, rest = problem.where.partition(", ")
    kind, _, name = head.partition(" ")
    if kind == "patch":
        return machine.path("patches", name.partition(" (")[0])
    if kind in _DOCUMENTS:
        return _of_document(kind, name, rest, machine)
    if kind == "DHCPv4Config":
        held = next((key for key in ("links", "bonds", "vlans") if name in mapping(machine.keys.get(key))), "links")
        return machine.path(held, name, "dhcp")
    if kind in _OF_THE_CLUSTER:
        return _of_site(kind, name, rest)
    field = rest if kind == document.API_VERSION else problem.where
    for known, key in _FIELDS.items():
        if field == known or field.startswith((f"{known}.", f"{known}[")):
            return machine.path(key)
    for known, key in _FIELDS_OF_THE_CLUSTER.items():
        if field.startswith(known):
            return (*MACHINES, *key.split(".")) if key else ("name",)
    # Problems that are already reported under the site's own keys.
    if field and _plain(field)[0] in machine.keys:
        return machine.path(*_plain(field))
    return (*MACHINES, "nodes", machine.name)


def _of_document(kind: str, name: str, rest: str, machine: Machine) -> Path:
    template = _DOCUMENTS[kind]
    storage = (*MACHINES, "hgx", "storage", "disks", name)
    section = template.partition(".")[0]
    fields = _plain(rest)
    if section in {"volumes", "raw_volumes"} and name not in mapping(machine.keys.get(section)):
        return (*storage, *({"disk_selector": "selector"}.get(field, field) for field in fields[1:]))
    if section in {"links", "bonds", "vlans"}:
        # The machine's own address comes before those of the site, so their numbers say nothing.
        fields = fields[:1] if fields[:1] in (("addresses",), ("links",)) else fields
    elif section in {"link_aliases", "static_hosts"}:
        fields = ()
    elif fields[:1] == ("encryption",):
        fields = fields[:1]
    return machine.path(section, name, *fields)


def _of_site(kind: str, name: str, rest: str) -> Path:
    key = _OF_THE_CLUSTER[kind]
    if kind == "Layer2VIPConfig" and rest.startswith("link"):
        key = "networks.vip_link"
    if kind == "NetworkRuleConfig":
        key = f"firewall.{_RULES.get(name, 'admins')}"
    path: Path = (*MACHINES, *(part.format(name) for part in key.split(".")))
    inner = _plain(rest)
    if kind == "RegistryMirrorConfig" and inner[:1] == ("endpoints",):
        return (*path, *inner[:2])
    return (*path, "ca") if kind == "RegistryTLSConfig" and inner[:1] == ("ca",) else path


def _of_cluster(problem: document.Problem, machines: Mapping[str, Machine]) -> Path:
    """Where several machines have one address: the last of them."""
    given = re.match(r"give (\S+) to (.+)", problem.what) if problem.where == "nodes" else None
    if given is None:
        return (*MACHINES, *_plain(problem.where)[:1])
    holders = [machines[name] for name in given[2].split(" and ") if name in machines]
    for machine in reversed(holders):
        for kind in ("links", "bonds", "vlans"):
            for name, link in mapping(machine.keys.get(kind)).items():
                if address(given[1]) in map(address, items(mapping(link).get("addresses"))):
                    return machine.path(kind, str(name), "addresses")
    return (*MACHINES, "nodes", holders[-1].name, "address") if holders else (*MACHINES, "nodes")


def _plain(where: str) -> Path:
    """A field's place as keys: `routes[0].gateway` is routes, 0, gateway."""
    return tuple(part for part in re.split(r"[.\[\]]+", where) if part)


def _some(nodes: Sequence[str]) -> str:
    names = sorted(set(nodes))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
