"""From the description of a cluster to the config of each of its machines: what a caller of this package needs.

`machine_configs` is pure: no clock, no randomness, no network. Equal descriptions give equal bytes, in whatever order
nodes, documents, labels and the like are written down.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from floor.problems import Path
from talos.cluster import MachineSettings, TalosCluster
from talos.documents import checks
from talos.documents.contract import contract_of
from talos.documents.document import Document, Wire
from talos.documents.firewall import cluster_rules
from talos.documents.network import BondConfig, HostnameConfig, Layer2VIPConfig, Link
from talos.documents.patches import Level, Patch
from talos.documents.problems import ConfigError, ConfigProblem, require_none
from talos.documents.rendering import render
from talos.documents.v1alpha1 import Install
from talos.hgx import HGXProfile
from talos.machine_config import MachineConfig

Role = Literal["controlplane", "worker"]


@dataclass(frozen=True, kw_only=True)
class Firewall:
    """Who may reach the machines, as subnets in CIDR form; see `cluster_rules`. Everything else is blocked."""

    admins: tuple[str, ...]
    control_planes: tuple[str, ...]
    nodes: tuple[str, ...]
    clients: tuple[str, ...] = ()
    load_balancer_ports: tuple[int | str, ...] = ()
    talos_api_pods: tuple[str, ...] = ()
    metrics_pods: tuple[str, ...] = ()
    pod_network_metrics: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeDescription:
    """One machine.

    `name` is its host name and its name in Kubernetes. `install` names the disk for Talos, and the installer
    image of the node's schematic, `FACTORY/metal-installer/ID:VERSION`. `network` are its links, addresses and VIP;
    with none at all Talos asks every link for DHCP. `documents` are others of its own, such as volumes. `takes_pods`:
    a control plane on which pods run as on workers.
    """

    name: str
    role: Role
    install: Install
    network: tuple[Document, ...] = ()
    documents: tuple[Document, ...] = ()
    profile: HGXProfile | None = None
    takes_pods: bool = False
    settings: MachineSettings = field(default_factory=MachineSettings)
    patches: tuple[Patch, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class ClusterDescription:
    """A whole cluster. Settings for all nodes come first, then those of a role, of the HGX profile, of the node.

    `talos_version` such as `v1.13.9` decides the contract, and every installer image must be of it. `node_subnets`
    decide which of a machine's addresses is the node's: name one as soon as machines have several networks.
    """

    cluster: TalosCluster
    talos_version: str
    nodes: tuple[NodeDescription, ...]
    node_subnets: tuple[str, ...] = ()
    documents: tuple[Document, ...] = ()
    role_documents: Mapping[Role, tuple[Document, ...]] = field(default_factory=dict)
    settings: MachineSettings = field(default_factory=MachineSettings)
    role_settings: Mapping[Role, MachineSettings] = field(default_factory=dict)
    patches: tuple[Patch, ...] = field(default=(), repr=False)
    role_patches: Mapping[Role, tuple[Patch, ...]] = field(default_factory=dict, repr=False)
    firewall: Firewall | None = None


def machine_configs(description: ClusterDescription) -> dict[str, bytes]:
    """The config of each node, by its name: YAML in UTF-8, control planes first, then by name.

    The values are secret: each holds keys of the cluster. ConfigError names every problem of every node at once.
    """
    return {name: render(documents).encode() for name, documents in machine_documents(description).items()}


def machine_documents(description: ClusterDescription) -> dict[str, list[Wire]]:
    """The same as documents in wire form, for those who want the check alone: YAML takes half of the time."""
    problems = list(_problems_of_cluster(description))
    try:
        contract_of(description.talos_version)
    except ConfigError as error:
        raise ConfigError.of([*problems, *error.problems]) from None
    documents = {}
    for node in sorted(description.nodes, key=lambda node: (node.role != "controlplane", node.name)):
        problems += [problem.on(node.name) for problem in _problems_of_node(node, description)]
        try:
            documents[node.name] = _config(node, description).wire()
        except ConfigError as error:
            problems += [problem.on(node.name) for problem in error.problems]
    require_none(problems)
    return documents


def _config(node: NodeDescription, description: ClusterDescription) -> MachineConfig:
    cluster = description.cluster
    settings = MachineSettings(node_ip_subnets=description.node_subnets).joined(description.settings)
    settings = settings.joined(description.role_settings.get(node.role, MachineSettings()))
    if node.profile is not None:
        settings = settings.joined(node.profile.settings())
    settings = settings.joined(node.settings)
    base = cluster.control_plane if node.role == "controlplane" else cluster.worker
    return MachineConfig(
        documents=(
            base(node.install, settings),
            HostnameConfig(hostname=node.name),
            *description.documents,
            *description.role_documents.get(node.role, ()),
            *_firewall(node, description),
            *(node.profile.documents if node.profile else ()),
            *node.network,
            *node.documents,
        ),
        patches=(*description.patches, *description.role_patches.get(node.role, ()), *node.patches),
        contract=contract_of(description.talos_version),
    )


def _firewall(node: NodeDescription, description: ClusterDescription) -> tuple[Document, ...]:
    plan = description.firewall
    if plan is None:
        return ()
    return cluster_rules(
        node.role,
        admins=plan.admins,
        control_planes=plan.control_planes,
        nodes=plan.nodes,
        cni=description.cluster.cni.name,
        load_balancer_ports=plan.load_balancer_ports,
        clients=plan.clients,
        takes_pods=node.takes_pods,
        talos_api_pods=plan.talos_api_pods,
        metrics_pods=plan.metrics_pods,
        pod_network_metrics=plan.pod_network_metrics,
    )


def _problems_of_cluster(description: ClusterDescription) -> Iterator[ConfigProblem]:
    roles = Counter(node.role for node in description.nodes)
    if not roles["controlplane"]:
        yield ConfigProblem(
            path=("nodes",), what="has no control plane", allowed="one or more, best three", fix="add one"
        )
    for name, count in Counter(node.name for node in description.nodes).items():
        if count > 1:
            yield ConfigProblem(
                path=("nodes",), what=f"has {name} {count} times", allowed="once", fix="rename or remove one"
            )
    holders = defaultdict(set)
    for node in description.nodes:
        for address in _addresses(node):
            holders[address].add(node.name)
    for address, names in sorted(holders.items(), key=lambda item: str(item[0])):
        if len(names) > 1:
            yield ConfigProblem(
                path=("nodes", max(names)),
                what=f"is an address of {' and '.join(sorted(names - {max(names)}))} too",
                got=str(address),
                allowed="an address of its own for each node",
                fix="change one of them",
            )
    yield from _problems_of_kubernetes(description)
    yield from _problems_of_levels(("patches",), description.patches, "cluster")
    for role, patches in description.role_patches.items():
        yield from _problems_of_levels(("role_patches", role), patches, "role")


def _problems_of_kubernetes(description: ClusterDescription) -> Iterator[ConfigProblem]:
    try:
        first, last = contract_of(description.talos_version).kubernetes
    except ConfigError:
        return
    version = description.cluster.kubernetes_version
    major, minor, patch = ([*version.removeprefix("v").split("."), "", "", ""])[:3]
    known = version.startswith("v") and major == "1" and patch.isdecimal() and minor.isdecimal()
    if not known or not first <= int(minor) <= last:
        yield ConfigProblem(
            path=("cluster", "kubernetes_version"),
            what=f"is none that Talos {description.talos_version} runs",
            got=repr(version),
            allowed=f"v1.{first}.x to v1.{last}.x",
            fix="choose a version in between, or another version of Talos",
        )


def _problems_of_levels(path: Path, patches: tuple[Patch, ...], level: Level) -> Iterator[ConfigProblem]:
    for patch in patches:
        if patch.level != level:
            yield ConfigProblem(
                path=path,
                what=f"has patch {patch.name} of another level",
                got=patch.level,
                allowed=level,
                fix="move it to where it belongs, or correct its level",
            )


def _problems_of_node(node: NodeDescription, description: ClusterDescription) -> Iterator[ConfigProblem]:
    if "." in node.name:
        yield ConfigProblem(
            path=("name",), what="has dots", got=node.name, allowed="one label", fix="leave the domain out"
        )
    if node.profile is not None and node.role != "worker":
        yield ConfigProblem(
            path=("profile",), what="is on a control plane", allowed="workers", fix="make the node a worker"
        )
    yield from _problems_of_image(node.install.image, description.talos_version)
    yield from _problems_of_levels(("patches",), node.patches, "node")
    links = {name for link in node.network if isinstance(link, BondConfig) for name in link.links}
    for document in node.network:
        if isinstance(document, Layer2VIPConfig) and node.role != "controlplane":
            yield ConfigProblem(
                document=(document.kind, document.address),
                what="is on a worker",
                allowed="control planes, which agree through etcd who holds it",
                fix="move it to the control planes",
            )
        elif isinstance(document, Link) and document.name in links and document.addresses:
            yield ConfigProblem(
                document=(document.kind, document.name),
                what="has addresses, and belongs to a bond",
                allowed="addresses on the bond, or a VLAN of it",
                fix="move the addresses to the bond",
            )
    networks = description.cluster.pod_subnets + description.cluster.service_subnets
    for address in _addresses(node):
        for subnet in filter(checks.is_cidr, networks):
            if checks.overlap(str(address), subnet):
                yield ConfigProblem(
                    path=("network",),
                    what=f"has {address}, which lies in {subnet} of pods or services",
                    allowed="networks that do not overlap",
                    fix="give pods and services other subnets",
                )


def _problems_of_image(image: str | None, talos_version: str) -> Iterator[ConfigProblem]:
    tag = (image or "").partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag != talos_version:
        yield ConfigProblem(
            path=("install", "image"),
            what=f"is not of Talos {talos_version}",
            got=image or "no image",
            allowed=f"FACTORY/metal-installer[-secureboot]/SCHEMATIC:{talos_version}",
            fix="take the installer of the node's schematic for this version",
        )


def _addresses(node: NodeDescription) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The static addresses of a node that are well formed."""
    for document in node.network:
        if isinstance(document, Link):
            for address in document.addresses:
                if checks.is_cidr(address.address):
                    yield ipaddress.ip_interface(address.address).ip
