"""The v1alpha1 document of contract v1.13: what has no separate document yet, for machine and cluster.

Keys and certificates are base64 of their PEM text here, unlike in the other documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from talos.documents import checks
from talos.documents.document import API_VERSION, Document, Part, Wire, checked, wired
from talos.documents.problems import ConfigProblem

DiskType = Literal["ssd", "hdd", "nvme", "sd"]

# Talos takes an empty text for none, and then any disk matches.
_NOT_EMPTY = checks.expect(lambda text: bool(text.strip()), "a text that is not empty", fix="write it, or take it out")
_SUBNETS = checks.both(checks.some("subnet"), checks.every(checks.cidr))


@dataclass(frozen=True, kw_only=True)
class CertificateAndKey(Part):
    """A certificate and its key, both base64 of PEM; `key` is empty where a machine may only check, not sign."""

    crt: str
    key: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class KernelModule(Part):
    name: str = field(metadata=checked(checks.module_name))
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExtraMount(Part):
    """A mount into the kubelet's container."""

    destination: str = field(metadata=checked(checks.absolute_path))
    type: str = "bind"
    source: str = field(metadata=checked(checks.absolute_path))
    options: tuple[str, ...] = ("bind", "rshared", "rw")


@dataclass(frozen=True, kw_only=True)
class Kubelet(Part):
    """`node_ip_subnets` decide which of the machine's addresses is the node's; `extra_config` is the kubelet's own."""

    image: str
    default_runtime_seccomp_profile_enabled: bool | None = True
    disable_manifests_directory: bool | None = True
    cluster_dns: tuple[str, ...] = field(
        default=(), metadata=wired("clusterDNS", check=checks.every(checks.ip_address))
    )
    extra_args: Mapping[str, str] = field(default_factory=dict)
    extra_mounts: tuple[ExtraMount, ...] = ()
    extra_config: Mapping[str, Any] = field(default_factory=dict)
    node_ip_subnets: tuple[str, ...] = field(
        default=(),
        metadata=wired("nodeIP", lambda subnets: {"validSubnets": list(subnets)}, checks.every(checks.cidr_or_not)),
    )


@dataclass(frozen=True, kw_only=True)
class InstallDisk(Part):
    """Which disk Talos is installed on when none is named: all that is given must match. `size` is `<= 2TB` or so."""

    size: str | None = field(default=None, metadata=checked(checks.disk_size))
    name: str | None = field(default=None, metadata=checked(_NOT_EMPTY))
    model: str | None = field(default=None, metadata=checked(_NOT_EMPTY))
    serial: str | None = field(default=None, metadata=checked(_NOT_EMPTY))
    uuid: str | None = field(default=None, metadata=checked(_NOT_EMPTY))
    wwid: str | None = field(default=None, metadata=checked(_NOT_EMPTY))
    type: DiskType | None = None
    bus_path: str | None = field(default=None, metadata=checked(_NOT_EMPTY))


@dataclass(frozen=True, kw_only=True)
class Install(Part):
    """Where and what Talos installs: a device path or a selector, and the installer image of the schematic."""

    disk: str | None = field(default=None, metadata=checked(checks.absolute_path))
    disk_selector: InstallDisk | None = None
    image: str | None = None
    wipe: bool = False
    grub_use_uki_cmdline: bool | None = field(default=True, metadata=wired("grubUseUKICmdline"))

    def disagreements(self) -> Iterator[ConfigProblem]:
        if (self.disk is None) == (self.disk_selector is None or not self.disk_selector.wire()):
            yield ConfigProblem(
                path=("disk",),
                what="names a disk in two ways" if self.disk else "names no disk",
                allowed="a device, or what selects one: model, serial, size ...",
                fix="name a device such as /dev/disk/by-id/..., or select one",
            )


@dataclass(frozen=True, kw_only=True)
class LoggingDestination(Part):
    """Where Talos's own logs go, `tcp://host:port` or `udp://host:port`."""

    endpoint: str = field(metadata=checked(checks.url("tcp", "udp", port=True)))
    format: Literal["json_lines"] = "json_lines"
    extra_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MachineFile(Part):
    """A file below /var, written at each boot; `permissions` as in Unix."""

    content: str = field(repr=False)
    permissions: int
    path: str = field(metadata=checked(checks.absolute_path))
    op: Literal["create"] = "create"


@dataclass(frozen=True, kw_only=True)
class Machine(Part):
    """The half about this machine. Taints are `key: value:Effect`."""

    type: Literal["controlplane", "worker"]
    token: str = field(repr=False)
    ca: CertificateAndKey
    accepted_cas: tuple[str, ...] = field(
        default=(),
        metadata=wired("acceptedCAs", lambda certificates: [{"crt": certificate} for certificate in certificates]),
    )
    cert_sans: tuple[str, ...] = field(default=(), metadata=wired("certSANs"))
    kubelet: Kubelet
    install: Install
    sysctls: Mapping[str, str] = field(default_factory=dict, metadata=checked(checks.texts))
    sysfs: Mapping[str, str] = field(default_factory=dict, metadata=checked(checks.texts))
    features: Mapping[str, Any] = field(default_factory=dict)
    udev_rules: tuple[str, ...] = field(default=(), metadata=wired("udev", lambda rules: {"rules": list(rules)}))
    logging: tuple[LoggingDestination, ...] = field(
        default=(),
        metadata=wired("logging", lambda where: {"destinations": [destination.wire() for destination in where]}),
    )
    kernel_modules: tuple[KernelModule, ...] = field(
        default=(), metadata=wired("kernel", lambda modules: {"modules": [module.wire() for module in modules]})
    )
    files: tuple[MachineFile, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict, metadata=checked(checks.labels))
    node_annotations: Mapping[str, str] = field(default_factory=dict, metadata=checked(checks.node_annotations))
    node_taints: Mapping[str, str] = field(default_factory=dict, metadata=checked(checks.taints))

    def disagreements(self) -> Iterator[ConfigProblem]:
        for name, count in Counter(module.name for module in self.kernel_modules).items():
            if count > 1:
                yield ConfigProblem(path=("kernel_modules",), what="has a module twice", got=name, fix="keep one")
        if self.type != "worker":
            return
        for label in self.node_labels:
            if not checks.may_label_itself(label):
                yield ConfigProblem(
                    path=("node_labels",),
                    what="has a label that Kubernetes lets no worker give itself",
                    got=label,
                    allowed="your own domains, node.kubernetes.io/, kubelet.kubernetes.io/, topology zone and region",
                    fix="use another domain; set role labels through the Kubernetes API",
                )


@dataclass(frozen=True, kw_only=True)
class InlineManifest(Part):
    """Kubernetes objects (YAML) that the control plane applies at bootstrap, before any node is Ready."""

    name: str
    contents: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ControlPlaneProgram(Part):
    """One of the control plane's static pods, by image, with arguments beyond Talos's own."""

    image: str | None = None
    disabled: bool | None = None
    extra_args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostMount(Part):
    """A folder of the host in one of these pods."""

    host_path: str = field(metadata=checked(checks.absolute_path))
    mount_path: str = field(metadata=checked(checks.absolute_path))
    read_only: bool = field(default=True, metadata=wired("readonly"))


@dataclass(frozen=True, kw_only=True)
class APIServer(ControlPlaneProgram):
    extra_volumes: tuple[HostMount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, metadata=wired("env"))
    cert_sans: tuple[str, ...] = field(default=(), metadata=wired("certSANs"))
    admission_control: tuple[Mapping[str, Any], ...] = ()
    audit_policy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClusterNetwork(Part):
    """Address plan of the cluster, in CIDR form, and who makes the pod network: flannel, or none of Talos's own."""

    cni: Literal["flannel", "none"] | None = field(default=None, metadata=wired("cni", lambda name: {"name": name}))
    dns_domain: str = field(default="cluster.local", metadata=checked(checks.hostname))
    pod_subnets: tuple[str, ...] = field(default=("10.244.0.0/16",), metadata=checked(_SUBNETS))
    service_subnets: tuple[str, ...] = field(default=("10.96.0.0/12",), metadata=checked(_SUBNETS))

    def disagreements(self) -> Iterator[ConfigProblem]:
        for pods in filter(checks.is_cidr, self.pod_subnets):
            for services in filter(checks.is_cidr, self.service_subnets):
                if checks.overlap(pods, services):
                    yield ConfigProblem(
                        path=("service_subnets",),
                        what=f"overlap the pods' {pods}",
                        got=services,
                        fix="move one of them",
                    )


@dataclass(frozen=True, kw_only=True)
class Etcd(Part):
    """`advertised_subnets` decide which of the machine's addresses etcd members know each other by."""

    ca: CertificateAndKey
    extra_args: Mapping[str, str] = field(default_factory=dict)
    advertised_subnets: tuple[str, ...] = field(default=(), metadata=checked(checks.every(checks.cidr_or_not)))


@dataclass(frozen=True, kw_only=True)
class Cluster(Part):
    """The half about the cluster. Workers get the certificates alone, and none of the control plane's programs."""

    id: str
    secret: str = field(repr=False)
    endpoint: str = field(
        metadata=wired("controlPlane", lambda url: {"endpoint": url}, checks.url("https", path=False))
    )
    cluster_name: str = field(metadata=checked(checks.hostname))
    network: ClusterNetwork
    token: str = field(repr=False)
    secretbox_encryption_secret: str | None = field(default=None, repr=False)
    aescbc_encryption_secret: str | None = field(default=None, repr=False)
    ca: CertificateAndKey
    accepted_cas: tuple[str, ...] = field(
        default=(),
        metadata=wired("acceptedCAs", lambda certificates: [{"crt": certificate} for certificate in certificates]),
    )
    aggregator_ca: CertificateAndKey | None = field(default=None, metadata=wired("aggregatorCA"))
    service_account_key: str | None = field(
        default=None, repr=False, metadata=wired("serviceAccount", lambda key: {"key": key})
    )
    api_server: APIServer | None = None
    controller_manager: ControlPlaneProgram | None = None
    proxy: ControlPlaneProgram | None = None
    scheduler: ControlPlaneProgram | None = None
    discovery: Mapping[str, Any] = field(default_factory=dict)
    etcd: Etcd | None = None
    inline_manifests: tuple[InlineManifest, ...] = ()
    admin_kubeconfig_lifetime: str | None = field(
        default=None, metadata=wired("adminKubeconfig", lambda lifetime: {"certLifetime": lifetime})
    )
    allow_scheduling_on_control_planes: bool | None = None


@dataclass(frozen=True, kw_only=True)
class V1Alpha1(Document):
    """The one document that every machine must have, and the only one without `apiVersion` and `kind`."""

    kind: ClassVar[str] = API_VERSION

    debug: bool = False
    persist: bool = True
    machine: Machine
    cluster: Cluster

    def document(self) -> Wire:
        return {"version": API_VERSION, **self.wire()}
