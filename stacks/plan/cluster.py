"""From `cluster.machines` of a site to its machines' configs, schematics and images. Pure, and checked at load."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import yaml

from floor import gpu_nodes, namespaces
from stacks.facts.versions import Versions
from stacks.plan.administrators import api_server_settings
from stacks.plan.machine_documents import (
    SecretTexts,
    encryption,
    install,
    merged_keys,
    network_documents,
    secret_names,
    settings,
    volume_documents,
)
from stacks.site.machine import InstallDiskSpec, MachineKeys, NodeSpec
from stacks.site.machines import HgxSpec, MachinesSpec
from talos.cluster import MachineSettings, TalosCluster
from talos.cni import CNI, Cilium, External
from talos.documents import network, registry, runtime
from talos.documents.document import Document, Wire
from talos.documents.patches import Level, parse_patch
from talos.documents.problems import ConfigError, ConfigProblem
from talos.documents.v1alpha1 import LoggingDestination
from talos.factory.schematic import FactoryError, Schematic
from talos.factory.site import FactorySite
from talos.hgx import HGXProfile
from talos.machines import ClusterDescription, Firewall, NodeDescription, machine_configs, machine_documents
from talos.secrets.bundle import SecretsBundle
from talos.secrets.pki import KeyPair
from talos.storage import LonghornDisk, LonghornStorage

# Configs are checked when a site is read, and the cluster's secrets are made by the first `up`: until then this word
# takes their place.
_NOT_MADE_YET = "placeholder"


@dataclass(frozen=True)
class PlannedNode:
    """What is known of a machine without any secret."""

    name: str
    spec: NodeSpec
    keys: MachineKeys
    """Of the cluster, the role and the node together."""
    schematic: Schematic
    image: str
    """Installer of its schematic for the Talos version."""

    @property
    def is_control_plane(self) -> bool:
        return self.spec.role == "controlplane"


@dataclass(frozen=True)
class ClusterPlan:
    """The machines of a site, control planes first, then by name."""

    name: str
    machines: MachinesSpec
    versions: Versions
    nodes: tuple[PlannedNode, ...]
    whole: frozenset[str] = frozenset()
    """Nodes that one replica takes as a whole, by name."""
    measured: bool = False
    """Whether pods of the site read metrics of machines and of etcd."""
    pod_network_measured: bool = False
    """Whether they read Cilium's too."""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Keys of the stack's configuration that the configs need, sorted."""
        names = {name for node in self.nodes for name in secret_names(node.keys)}
        for auth in self.machines.registries.auth.values():
            names |= {secret for secret in (auth.password_secret, auth.identity_token_secret) if secret}
        storage = self.machines.hgx.storage
        for disk in storage.disks.values() if storage else ():
            names |= {key.passphrase_secret for key in disk.encryption if key.passphrase_secret}
        return tuple(sorted(names))

    def configs(self, bundle: SecretsBundle, secret_texts: SecretTexts, cilium: str | None) -> dict[str, str]:
        """The config of each machine by its name; secret. `cilium` is the inline manifest. ConfigError as there."""
        nodes = tuple(self._node(node, secret_texts) for node in self.nodes)
        made = machine_configs(self._description(bundle, secret_texts, cilium, nodes))
        return {name: config.decode() for name, config in made.items()}

    def documents(self, bundle: SecretsBundle, secret_texts: SecretTexts, cilium: str | None) -> dict[str, list[Wire]]:
        """The same configs as documents in wire form."""
        nodes = tuple(self._node(node, secret_texts) for node in self.nodes)
        return machine_documents(self._description(bundle, secret_texts, cilium, nodes))

    def problems(self) -> Iterator[ConfigProblem]:
        """What is wrong with the configs, found without secrets: of each machine, then of all together."""
        texts = defaultdict[str, str](lambda: _NOT_MADE_YET)
        nodes, problems = [], list[ConfigProblem]()
        for planned in self.nodes:
            try:
                nodes.append(self._node(planned, texts))
            except ConfigError as error:
                problems += [problem.on(planned.name) for problem in error.problems]
                nodes.append(_bare(planned))
        try:
            machine_documents(self._description(placeholder_bundle(_NOT_MADE_YET), texts, None, tuple(nodes)))
        except ConfigError as error:
            problems += error.problems
        yield from dict.fromkeys(problems)

    def _description(
        self, bundle: SecretsBundle, secret_texts: SecretTexts, cilium: str | None, nodes: tuple[NodeDescription, ...]
    ) -> ClusterDescription:
        machines = self.machines
        networks = machines.networks
        vip = networks.vip
        cni: CNI = Cilium(manifest=cilium) if machines.cni == "cilium" else External()
        cluster = TalosCluster(
            name=self.name,
            endpoint=machines.endpoint,
            kubernetes_version=self.versions.kubernetes,
            kubelet_version=self.versions.kubelet or "",
            secrets=bundle,
            cni=cni,
            pod_subnets=(networks.pods,),
            service_subnets=(networks.services,),
            dns_domain=networks.dns_domain,
            discovery=machines.discovery,
            api_server_sans=machines.api_server_sans,
            api_server=api_server_settings(machines),
            etcd_subnets=networks.nodes,
            etcd_metrics=self.measured,
            backup_namespace=namespaces.ETCD_BACKUP if machines.etcd_backup else None,
            allow_scheduling_on_control_planes=any(node.schedulable for node in machines.nodes.values()),
        )
        return ClusterDescription(
            cluster=cluster,
            talos_version=self.versions.talos,
            nodes=nodes,
            node_subnets=(*networks.nodes, *((f"!{_alone(vip)}",) if vip else ())),
            documents=tuple(_site_documents(machines, secret_texts)),
            settings=_site_settings(machines),
            patches=_patches(machines.patches, "cluster"),
            firewall=_firewall(machines, measured=self.measured, pod_network=self.pod_network_measured),
        )

    def _node(self, planned: PlannedNode, secret_texts: SecretTexts) -> NodeDescription:
        spec, keys, networks = planned.spec, planned.keys, self.machines.networks
        links = tuple(network_documents(keys, spec, networks.nodes))
        if planned.is_control_plane and networks.vip:
            links += (network.Layer2VIPConfig(address=networks.vip, link=networks.vip_link or ""),)
        role_keys = self.machines.roles.get(spec.role, MachineKeys())
        patches = (*_patches(role_keys.patches, "node"), *_patches(spec.patches, "node"))
        own = settings(keys)
        if planned.is_control_plane and self._mixed and not spec.schedulable:
            own = own.joined(MachineSettings(node_taints={"node-role.kubernetes.io/control-plane": ":NoSchedule"}))
        if spec.role == "hgx" and keys.mig is not None:
            own = own.joined(MachineSettings(node_labels={gpu_nodes.MIG_LAYOUT_LABEL: keys.mig}))
        if planned.name in self.whole:
            own = own.joined(MachineSettings(node_labels={gpu_nodes.WHOLE_LABEL: "true"}))
        return NodeDescription(
            name=planned.name,
            role="controlplane" if planned.is_control_plane else "worker",
            install=install(keys.install_disk, planned.image),
            network=links,
            documents=tuple(volume_documents(keys, secret_texts)),
            profile=hgx_profile(self.machines, keys, secret_texts) if spec.role == "hgx" else None,
            takes_pods=spec.schedulable,
            settings=own,
            patches=patches,
        )

    @property
    def _mixed(self) -> bool:
        """Some control planes take pods and some do not, so that each must set it by itself."""
        planes = [node.spec.schedulable for node in self.nodes if node.is_control_plane]
        return any(planes) and not all(planes)


def plan_cluster(
    name: str,
    machines: MachinesSpec,
    versions: Versions,
    whole: frozenset[str] = frozenset(),
    *,
    measured: bool = False,
    pod_network_measured: bool = False,
) -> ClusterPlan:
    """The plan of a cluster. ConfigError or FactoryError for a factory or HGX profile that cannot be.

    measured: whether pods read metrics of its machines. pod_network_measured: whether they read Cilium's too.
    """
    factory = FactorySite(machines.image_factory)
    nodes = []
    for node_name, spec in machines.nodes.items():
        keys = merged_keys(machines, spec)
        schematic = _schematic(keys.extensions, keys.kernel_args)
        if spec.role == "hgx":
            profile = hgx_profile(machines, keys, defaultdict(lambda: _NOT_MADE_YET))
            schematic = _schematic(profile.extensions, (*profile.kernel_args, *keys.kernel_args))
        image = factory.assets(schematic.id, versions.talos, secure_boot=machines.secure_boot).installer
        nodes.append(PlannedNode(node_name, spec, keys, schematic, image))
    ordered = sorted(nodes, key=lambda node: (not node.is_control_plane, node.name))
    return ClusterPlan(name, machines, versions, tuple(ordered), whole, measured, pod_network_measured)


@lru_cache(maxsize=256)
def _schematic(extensions: tuple[str, ...], kernel_args: tuple[str, ...]) -> Schematic:
    # One for all machines of a role: its id is a digest of YAML.
    return Schematic(extensions=extensions, kernel_args=kernel_args)


def plan_machines(
    name: str,
    machines: MachinesSpec,
    versions: Versions,
    whole: frozenset[str] = frozenset(),
    *,
    measured: bool = False,
    pod_network_measured: bool = False,
) -> tuple[ClusterPlan | None, list[ConfigProblem]]:
    """The plan of a cluster with every problem of its machines' configs. whole: nodes that one replica fills, by name.

    A machine without a possible config is reported and left out; None where a problem of all of them leaves no plan.
    """
    problems: list[ConfigProblem] = []
    try:
        FactorySite(machines.image_factory)
    except FactoryError as error:
        problems.append(ConfigProblem(path=("image_factory",), what=error.problem.what, fix=error.problem.fix))
        machines = machines.model_copy(update={"image_factory": MachinesSpec.model_fields["image_factory"].default})
    try:
        hgx_profile(machines, MachineKeys(), defaultdict(lambda: _NOT_MADE_YET))
    except ConfigError as error:
        problems += [replace(problem, path=("hgx",)) for problem in error.problems]
        machines = machines.model_copy(update={"hgx": HgxSpec()})
    try:
        plan = plan_cluster(
            name, machines, versions, whole, measured=measured, pod_network_measured=pod_network_measured
        )
    except ConfigError as error:
        return None, [*problems, *error.problems]
    try:
        return plan, [*problems, *plan.problems()]
    except ConfigError as error:
        return plan, [*problems, *error.problems]


def hgx_profile(machines: MachinesSpec, keys: MachineKeys, secret_texts: SecretTexts) -> HGXProfile:
    """The HGX nodes' profile; ConfigError for choices that exclude each other."""
    chosen = machines.hgx
    storage = None
    if chosen.storage is not None:
        disks = tuple(
            LonghornDisk(
                name=name,
                selector=disk.selector,
                min_size=disk.min_size,
                reserved_bytes=disk.reserved_bytes,
                tags=disk.tags,
                encryption=encryption(disk.encryption, secret_texts),
            )
            for name, disk in sorted(chosen.storage.disks.items())
        )
        storage = LonghornStorage(disks=disks, engine=chosen.storage.engine)
    return HGXProfile(
        modules=chosen.modules,
        fork=chosen.fork,
        rdma=chosen.rdma,
        gpu_direct=chosen.gpu_direct,
        huge_pages_2mib=chosen.huge_pages_2mib,
        storage=storage,
        extra_extensions=keys.extensions,
    )


def _site_documents(machines: MachinesSpec, secret_texts: SecretTexts) -> Iterator[Document]:
    if machines.resolvers:
        yield network.ResolverConfig(nameservers=machines.resolvers)
    if machines.time_servers:
        yield network.TimeSyncConfig(ntp_servers=machines.time_servers)
    if machines.watchdog_s:
        yield runtime.WatchdogTimerConfig(timeout_s=machines.watchdog_s)
    if machines.kernel_log:
        yield runtime.KmsgLogConfig(name="site", url=machines.kernel_log)
    for host, mirror in sorted(machines.registries.mirrors.items()):
        endpoints = tuple(registry.Endpoint(url=url, override_path=mirror.override_path) for url in mirror.endpoints)
        yield registry.RegistryMirrorConfig(name=host, endpoints=endpoints, skip_fallback=mirror.skip_fallback)
    for host, auth in sorted(machines.registries.auth.items()):
        password = secret_texts[auth.password_secret] if auth.password_secret else None
        token = secret_texts[auth.identity_token_secret] if auth.identity_token_secret else None
        yield registry.RegistryAuthConfig(name=host, username=auth.username, password=password, identity_token=token)
    for host, tls in sorted(machines.registries.tls.items()):
        yield registry.RegistryTLSConfig(name=host, ca=tls.ca, insecure_skip_verify=tls.insecure_skip_verify)
    for name, certificates in sorted(machines.trusted_roots.items()):
        yield registry.TrustedRootsConfig(name=name, certificates=certificates)


def _site_settings(machines: MachinesSpec) -> MachineSettings:
    logging = (LoggingDestination(endpoint=machines.log_destination),) if machines.log_destination else ()
    return MachineSettings(logging=logging)


def _firewall(machines: MachinesSpec, *, measured: bool, pod_network: bool) -> Firewall | None:
    spec = machines.firewall
    if spec is None:
        return None
    planes = [node.address for _, node in sorted(machines.nodes.items()) if node.role == "controlplane"]
    return Firewall(
        admins=spec.admins,
        control_planes=spec.control_planes or tuple(map(_alone, planes)),
        nodes=machines.networks.nodes,
        clients=spec.clients,
        load_balancer_ports=spec.load_balancer_ports,
        talos_api_pods=(machines.networks.pods,) if machines.etcd_backup else (),
        metrics_pods=(machines.networks.pods,) if measured else (),
        pod_network_metrics=pod_network,
    )


def _patches(patches: Mapping[str, Mapping[str, Any]], level: Level) -> tuple[Any, ...]:
    return tuple(parse_patch(name, level, yaml.safe_dump(dict(content))) for name, content in sorted(patches.items()))


def _bare(planned: PlannedNode) -> NodeDescription:
    """The machine with nothing of its own, so that others can be checked with it."""
    role: Literal["controlplane", "worker"] = "controlplane" if planned.is_control_plane else "worker"
    return NodeDescription(
        name=planned.name, role=role, install=install(InstallDiskSpec(device="/dev/sda"), planned.image)
    )


def _alone(address: str) -> str:
    """The subnet of one address."""
    return str(ipaddress.ip_network(address))


def placeholder_bundle(word: str) -> SecretsBundle:
    """A bundle for configs before there are secrets, or that show none: all the same word, which opens nothing."""
    pair = KeyPair(certificate=word, key=word)
    return SecretsBundle(
        cluster_id=word,
        cluster_secret=word,
        bootstrap_token=word,
        secretbox_encryption_secret=word,
        trustd_token=word,
        etcd=pair,
        kubernetes=pair,
        aggregator=pair,
        service_account_key=word,
        talos=pair,
    )
