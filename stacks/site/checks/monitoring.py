"""Keys of monitoring that its system does not read, that it lacks, or that Kubernetes would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.monitoring import READ_BY, MonitoringSpec
from floor import node_ports
from floor.problems import Problem, shown
from stacks.site.reading.levels import MACHINES
from stacks.site.reading.raw import at, items, mapping

_SECTION = "monitoring"
# What of the section starts the watcher.
_WATCHES = {"on_fault": ("drain",), "new_nodes": ("check", "load_test")}
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_WORD}")
_CILIUM_PORTS = f", and Cilium's at ports {node_ports.CILIUM_AGENT} and {node_ports.HUBBLE}"
_VALUE = re.compile(rf"({_WORD})?")
_GROUP = re.compile(r"[\w .:/@=,+-]+")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the section, as far as the values can be understood."""
    section = mapping(values.get(_SECTION))
    system = section.get("system", MonitoringSpec.model_fields["system"].default)
    if system not in READ_BY:
        return
    yield from _unread(section, system)
    yield from _no_cilium(values, section, system)
    if system == "external":
        yield from _of_others(section)
    yield from _unwatched(values, mapping(section.get("gpu_faults")))
    if at(section, "grafana", "run_by") == "platform":
        yield from _of_grafana(values, system)


def measures_hosts(values: Mapping[str, Any]) -> bool:
    """Whether the program's Prometheus reads nodes and the control plane."""
    section = mapping(values.get(_SECTION))
    system = section.get("system", MonitoringSpec.model_fields["system"].default)
    return system == "prometheus_operator" and section.get("hosts") == "measured"


def measures_pod_network(values: Mapping[str, Any]) -> bool:
    """Whether it reads this program's Cilium too."""
    return measures_hosts(values) and at(values, _SECTION, "pod_network") == "measured"


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works, and is not wise."""
    machines = mapping(at(values, *MACHINES))
    if machines and measures_hosts(values) and machines.get("firewall") is None:
        yield Problem(
            path=(_SECTION, "hosts"),
            what="without cluster.machines.firewall opens metrics to all that reach the machines, by plain HTTP: "
            f"etcd's at port {node_ports.ETCD} of control planes, on all their addresses, and node-exporter's at port "
            f"{node_ports.NODE_EXPORTER}{_CILIUM_PORTS if measures_pod_network(values) else ''}",
            got="measured",
            fix="set cluster.machines.firewall, which lets nodes and pods alone in",
        )


def _unread(section: Mapping[str, Any], system: str) -> Iterator[Problem]:
    for key in section:
        readers = [name for name, keys in READ_BY.items() if key in keys]
        if key in MonitoringSpec.model_fields and key != "system" and system not in readers:
            yield Problem(
                path=(_SECTION, str(key)),
                what=f"is set, and system {system} does not read it",
                got=shown(section[key]),
                allowed=f"with system {' or '.join(readers)}",
                fix=f"take it out, or set system to {readers[0]}",
            )


def _unwatched(values: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Problem]:
    """Nodes and GPUs that the watcher could not know."""
    key = next((name for name, choice in _WATCHES.items() if given.get(name) in choice), None)
    if key is None:
        return
    path = (_SECTION, "gpu_faults", key)
    if at(values, "cluster", "machines") is None:
        yield Problem(
            path=path,
            what=f"{given[key]} needs the site's nodes by name, and cluster.kubeconfig does not list them",
            got=shown(given[key]),
            allowed="with cluster.machines",
            fix="take it out: alerts about GPUs are there without it",
        )
    elif at(values, "cluster", "gpu_stack") in (None, "external"):
        yield Problem(
            path=path,
            what=f"{given[key]} needs what DCGM measures, and with cluster.gpu_stack external no monitor reads it",
            got=shown(given[key]),
            allowed="with cluster.gpu_stack: operator or device_plugin",
            fix="set cluster.gpu_stack to operator, or take it out",
        )


def _no_cilium(values: Mapping[str, Any], section: Mapping[str, Any], system: str) -> Iterator[Problem]:
    """A pod network that is measured without the scrapes of nodes, or that is another's."""
    if section.get("pod_network") != "measured" or system != "prometheus_operator":
        return
    machines, path = at(values, *MACHINES), (_SECTION, "pod_network")
    if not isinstance(machines, Mapping) or machines.get("cni", "cilium") != "cilium":
        yield Problem(
            path=path,
            what="is measured, and the pod network is not this program's Cilium",
            got="measured",
            allowed="with cluster.machines and cni: cilium",
            fix="take it out: measure the pod network by what installs it",
        )
    elif section.get("hosts") != "measured":
        yield Problem(
            path=path,
            what="is measured, and nodes are not, whose scrapes and permissions it needs",
            got="measured",
            allowed="with hosts: measured",
            fix="set hosts to measured, or take it out",
        )


def _of_grafana(values: Mapping[str, Any], system: str) -> Iterator[Problem]:
    """A Grafana without a Prometheus to ask, and logins without a group that may do something."""
    path = (_SECTION, "grafana")
    if system == "external":
        yield Problem(
            path=(*path, "run_by"),
            what="platform shows what the program's own Prometheus measured, and with system external there is none",
            got="platform",
            fix="set run_by to external, whose Grafana finds the dashboards by their label, or system to "
            "prometheus_operator",
        )
    if at(values, _SECTION, "grafana", "login") is None:
        return
    people = mapping(at(values, *MACHINES, "administrators"))
    if not people:
        yield Problem(
            path=(*path, "login"),
            what="takes issuer and groups of cluster.machines.administrators, and the site has none",
            fix="set cluster.machines.administrators, or name a Secret with a password in admin_secret instead",
        )
    for role in ("viewers", "operators", "admins"):
        for index, group in enumerate(items(people.get(role))):
            if isinstance(group, str) and not _GROUP.fullmatch(group):
                yield Problem(
                    path=(*MACHINES, "administrators", role, str(index)),
                    what="has a sign that Grafana reads as something else, and monitoring.grafana.login asks for it",
                    got=shown(group),
                    allowed="letters, digits, blanks and . _ : / @ = , + -",
                    fix="rename the group at the issuer, or take login out and set admin_secret",
                )


def _of_others(section: Mapping[str, Any]) -> Iterator[Problem]:
    namespace = section.get("scraper_namespace")
    if namespace is None:
        yield Problem(
            path=(_SECTION,),
            what="lacks scraper_namespace: no pod could read the platform's metrics",
            got="system external",
            allowed="the namespace of the cluster's Prometheus",
            fix="set scraper_namespace, such as monitoring",
        )
    elif isinstance(namespace, str) and not _NAMESPACE.fullmatch(namespace):
        yield Problem(
            path=(_SECTION, "scraper_namespace"),
            what="not a name of lower-case letters, digits and inner dashes, which a namespace has",
            got=shown(namespace),
            fix="write it like monitoring",
        )
    for key, value in mapping(section.get("labels")).items():
        if not _LABEL.fullmatch(str(key)) or (isinstance(value, str) and not _VALUE.fullmatch(value)):
            yield Problem(
                path=(_SECTION, "labels", str(key)),
                what="not a label, or not the value of one",
                got=shown(value),
                allowed="names and values of up to 63 letters, digits, dashes, dots and underscores",
                fix="write what the cluster's operator selects by, such as release: kube-prometheus-stack",
            )
