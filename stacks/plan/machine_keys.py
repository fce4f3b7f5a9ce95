"""From what Talos would refuse in a machine's config to the key under which the site set it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from floor.problems import Path, Problem
from stacks.site.reading.levels import MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import address, at, items, mapping
from talos.documents import checks
from talos.documents.document import API_VERSION
from talos.documents.problems import ConfigProblem, value_that_is_allowed

# Kind of document -> the section whose entry of the document's own name it is made of.
_DOCUMENTS: Mapping[str, str] = {
    "LinkAliasConfig": "link_aliases",
    "LinkConfig": "links",
    "BondConfig": "bonds",
    "VLANConfig": "vlans",
    "EthernetConfig": "ethernet",
    "StaticHostConfig": "static_hosts",
    "VolumeConfig": "system_volumes",
    "UserVolumeConfig": "volumes",
    "RawVolumeConfig": "raw_volumes",
}
# Kind of document -> the key of the cluster alone that it is made of; {} is the document's own name.
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
_FIELDS: Mapping[Path, str] = {
    ("machine", "install", "disk_selector"): "install_disk",
    ("machine", "install", "disk"): "install_disk",
    ("machine", "sysctls"): "sysctls",
    ("machine", "sysfs"): "sysfs",
    ("machine", "kernel_modules"): "kernel_modules",
    ("machine", "node_labels"): "labels",
    ("machine", "node_annotations"): "annotations",
    ("machine", "node_taints"): "taints",
    ("machine", "cert_sans"): "cert_sans",
    ("machine", "kubelet", "extra_config"): "kubelet_config",
    ("machine", "kubelet"): "kubelet_config",
}
_FIELDS_OF_THE_CLUSTER: Mapping[Path, str] = {
    ("machine", "logging"): "log_destination",
    ("cluster", "endpoint"): "endpoint",
    ("cluster", "cluster_name"): "",
    ("cluster", "network", "dns_domain"): "networks.dns_domain",
    ("cluster", "network", "pod_subnets"): "networks.pods",
    ("cluster", "network", "service_subnets"): "networks.services",
    ("cluster", "etcd", "advertised_subnets"): "networks.nodes",
    ("cluster", "api_server"): "api_server_sans",
    ("machine", "kubelet", "node_ip_subnets"): "networks.nodes",
}
# Firewall rule -> the key that its ports or subnets come from.
_RULES = {"load-balancers": "load_balancer_ports", "etcd": "control_planes"}
# Keys of which each entry is checked by itself.
_ENTRIES = {"labels": checks.labels, "annotations": checks.node_annotations, "taints": checks.taints}
_MOST_NAMES = 4


def site_problems(problems: Iterable[ConfigProblem], values: Mapping[str, Any]) -> Iterator[Problem]:
    """Each mistake once, at its key, with the machines that inherit it where it is not one machine's own."""
    machines = {machine.name: machine for machine in machines_of(at(values, *MACHINES))}
    nodes_of: dict[Problem, list[str]] = {}
    for refused in problems:
        machine = machines.get(refused.node)
        path = _of_machine(refused, machine) if machine else _of_cluster(refused, machines)
        problem = Problem(
            path=path, what=refused.what, got=refused.got, allowed=refused.allowed, fix=refused.fix or _step(path)
        )
        for single in (list(_wrong_entries(machine, problem)) if machine else []) or [problem]:
            nodes_of.setdefault(single, []).append(refused.node)
    for problem, nodes in nodes_of.items():
        shared = problem.path[:3] != (*MACHINES, "nodes") and any(nodes) and len(set(nodes)) < len(machines)
        yield replace(problem, what=f"{problem.what} ({_some(nodes)})") if shared else problem


def _step(path: Path) -> str:
    """The fix of a value that does not fit; an entry of a list is named with its list."""
    return value_that_is_allowed(path[-2:] if path and path[-1].isdecimal() else path[-1:])


def _wrong_entries(machine: SiteMachine, problem: Problem) -> Iterator[Problem]:
    """The wrong ones of a machine's labels, annotations or taints, each where the site wrote it."""
    key = problem.path[-1] if problem.path else ""
    for name, value in mapping(machine.keys.get(key)).items() if key in _ENTRIES else ():
        if _ENTRIES[key]({str(name): value}):
            path = machine.path(key, str(name))
            yield replace(problem, path=path, got=f"'{name}: {value}'", fix="correct its name or its value")


def _of_machine(problem: ConfigProblem, machine: SiteMachine) -> Path:
    if problem.patch:
        return machine.path("patches", problem.patch[0])
    kind, name = problem.document or ("", "")
    if kind in _DOCUMENTS:
        return _of_document(kind, name, problem.path, machine)
    if kind == "DHCPv4Config":
        held = next((key for key in ("links", "bonds", "vlans") if name in mapping(machine.keys.get(key))), "links")
        return machine.path(held, name, "dhcp")
    if kind in _OF_THE_CLUSTER:
        return _of_site(kind, name, problem.path)
    if kind in ("", API_VERSION):
        for field, key in _FIELDS.items():
            if problem.path[: len(field)] == field:
                return machine.path(key)
        for field, key in _FIELDS_OF_THE_CLUSTER.items():
            if problem.path[: len(field)] == field:
                return (*MACHINES, *key.split(".")) if key else ("name",)
        # Problems of the site's own keys, found while documents were made of them.
        if problem.path and problem.path[0] in machine.keys:
            return machine.path(*problem.path)
    return (*MACHINES, "nodes", machine.name)


def _of_document(kind: str, name: str, path: Path, machine: SiteMachine) -> Path:
    section = _DOCUMENTS[kind]
    storage = (*MACHINES, "hgx", "storage", "disks", name)
    if section in {"volumes", "raw_volumes"} and name not in mapping(machine.keys.get(section)):
        return (*storage, *({"disk_selector": "selector"}.get(field, field) for field in path[1:]))
    if section in {"links", "bonds", "vlans"}:
        # The machine's own address comes before those of the site, so their numbers mean nothing.
        path = path[:1] if path[:1] in (("addresses",), ("links",)) else path
    elif section in {"link_aliases", "static_hosts"}:
        path = ()
    elif path[:1] == ("encryption",):
        path = path[:1]
    return machine.path(section, name, *path)


def _of_site(kind: str, name: str, path: Path) -> Path:
    key = _OF_THE_CLUSTER[kind]
    if kind == "Layer2VIPConfig" and path[:1] == ("link",):
        key = "networks.vip_link"
    if kind == "NetworkRuleConfig":
        clients = name == "load-balancers" and path[:1] == ("ingress",)
        key = "firewall.clients" if clients else f"firewall.{_RULES.get(name, 'admins')}"
    whole: Path = (*MACHINES, *(part.format(name) for part in key.split(".")))
    if kind == "RegistryMirrorConfig" and path[:1] == ("endpoints",):
        return (*whole, *path[:2])
    return (*whole, "ca") if kind == "RegistryTLSConfig" and path[:1] == ("ca",) else whole


def _of_cluster(problem: ConfigProblem, machines: Mapping[str, SiteMachine]) -> Path:
    """The key of what concerns several machines; an address that two have is reported at one of them."""
    machine = machines.get(problem.path[1]) if problem.path[:1] == ("nodes",) and problem.path[1:] else None
    if machine is None:
        return (*MACHINES, *problem.path[:1])
    for kind in ("links", "bonds", "vlans"):
        for name, link in mapping(machine.keys.get(kind)).items():
            if address(problem.got) in map(address, items(mapping(link).get("addresses"))):
                return machine.path(kind, str(name), "addresses")
    return (*MACHINES, "nodes", machine.name, "address")


def _some(nodes: Sequence[str]) -> str:
    names = sorted(set(nodes))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
