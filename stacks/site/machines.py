"""What a site may set for a cluster that this program makes from machines: `cluster.machines`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.specs.administrators import AdministratorsSpec, AuditSpec
from components.specs.etcd_backup import EtcdBackupSpec
from floor.problems import WrongValueError
from floor.spec import MOST_SECONDS, Spec
from floor.stateful import Keeping
from stacks.site.machine import EncryptionKeySpec, MachineKeys, NodeSpec
from talos.hgx import Fork, GpuDirect, Modules, Rdma
from talos.storage import LonghornEngine

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def _plain_host_name(name: str) -> str:
    """The name, if it is a host name of at most 40 characters; else ValueError."""
    if not _HOST_NAME.fullmatch(name):
        raise WrongValueError(
            "this name is not 1 to 40 lower-case letters, digits and inner dashes, as host names are", fix="rename it"
        )
    return name


NodeName = Annotated[str, AfterValidator(_plain_host_name)]


class NetworksSpec(Spec):
    """Address plan of the cluster."""

    nodes: tuple[str, ...] = Field(min_length=1)
    """Subnets of the nodes' addresses; they decide which of a machine's addresses is the node's."""
    pods: str = "10.244.0.0/16"
    """Subnet of the pods; each node gets a /24 of it."""
    services: str = "10.96.0.0/12"
    """Subnet of the Services."""
    vip: str | None = None
    """Address that one control plane at a time holds, usually the host of `endpoint`."""
    vip_link: str | None = None
    """Link, bond or VLAN of the control planes that carries the VIP."""
    dns_domain: str = "cluster.local"
    """Domain of the Services."""


class LonghornDiskSpec(Spec):
    """A disk that Longhorn stores replicas on."""

    selector: str
    """CEL that matches this one disk of the node, such as `disk.serial == "..."`."""
    min_size: str
    """Such as `3TB`."""
    reserved_bytes: int = Field(default=0, ge=0)
    """Kept out of Longhorn's hands."""
    tags: tuple[str, ...] = ()
    """What a StorageClass's diskSelector names."""
    encryption: tuple[EncryptionKeySpec, ...] = ()
    """Keys of its LUKS2 encryption; none leaves it plain."""


class LonghornStorageSpec(Spec):
    """Disks for Longhorn."""

    engine: LonghornEngine = "v1"
    """v1 keeps files on XFS, v2 takes the partition itself."""
    disks: dict[str, LonghornDiskSpec] = Field(min_length=1)
    """Disks by name; the volume of each is called so too."""


class HgxSpec(Spec):
    """The HGX nodes' driver, RDMA and storage."""

    modules: Modules = "open"
    """NVIDIA's kernel modules."""
    fork: Fork = "production"
    """Line of NVIDIA's driver; its version comes with the Talos version."""
    rdma: Rdma = "none"
    """RDMA by the kernel's own mlx5 modules."""
    gpu_direct: GpuDirect = "dma-buf"
    """How network cards reach GPU memory: directly, which needs open modules, or by way of the host's."""
    huge_pages_2mib: int = Field(default=0, ge=0)
    """Pages of 2 MiB that are set aside."""
    storage: LonghornStorageSpec | None = None
    """Disks for Longhorn."""


class FirewallSpec(Spec):
    """Who may reach the machines; everything else is blocked."""

    admins: tuple[str, ...] = Field(min_length=1)
    """Subnets that may use the APIs of Talos and Kubernetes; the machine that runs `up` must be in one."""
    control_planes: tuple[str, ...] = ()
    """Subnets of the control planes, which etcd listens to; each control plane's own address if left out."""
    clients: tuple[str, ...] = ()
    """Subnets that may reach the load balancers' ports on workers."""
    load_balancer_ports: tuple[int | str, ...] = ()
    """Ports, or ranges such as 30000-32767."""


class MirrorSpec(Spec):
    """Where images of one registry are looked for."""

    endpoints: tuple[str, ...] = Field(min_length=1)
    """Addresses, asked in this order."""
    override_path: bool | None = None
    """The addresses' paths are taken as they are, without the registry's /v2."""
    skip_fallback: bool | None = None
    """The registry itself is never asked."""


class RegistryAuthSpec(Spec):
    """Credentials for a registry host: a user with a password, or a token."""

    username: str | None = None
    """Name of the user."""
    password_secret: str | None = None
    """Key of the stack's configuration that holds the password, set by `pulumi config set --secret`."""
    identity_token_secret: str | None = None
    """Key of the stack's configuration that holds the token."""


class RegistryTlsSpec(Spec):
    """TLS towards a registry host."""

    ca: str | None = None
    """Certificates to trust, as PEM."""
    insecure_skip_verify: bool | None = None
    """Believes any certificate."""


class RegistriesSpec(Spec):
    """Where machines get images from."""

    mirrors: dict[str, MirrorSpec] = Field(default_factory=dict)
    """By registry host; `*` means all."""
    auth: dict[str, RegistryAuthSpec] = Field(default_factory=dict)
    """By registry host."""
    tls: dict[str, RegistryTlsSpec] = Field(default_factory=dict)
    """By registry host."""


class MachinesSpec(MachineKeys):
    """A cluster that this program brings up from machines in maintenance mode."""

    endpoint: str
    """Address of the Kubernetes API: `https://HOST:6443`, of the VIP, a load balancer, or the only control plane."""
    image_factory: str = "https://factory.talos.dev"
    """Image factory that builds the machines' images."""
    secure_boot: bool = False
    """Machines boot signed images by UEFI Secure Boot: installer, boot media and network boot are the signed ones. A
    disk that a TPM seals needs it."""
    networks: NetworksSpec
    """Address plan of the cluster."""
    cni: Literal["cilium", "external"] = "cilium"
    """What gives pods their network: Cilium from this program, or a CNI that the site installs itself."""
    cilium_manifest: Path = Path(".bundle/cilium/cilium.yaml")
    """Cilium's manifest as `sitectl bundle` writes it; checked against the pinned digest. Relative to the project. If
    not set, `cilium-bgp.yaml` in the same folder where `addresses.announced_by` is `cilium_bgp`; `-measured` is added
    to the name with `monitoring.pod_network: measured`."""
    cilium_owner: Literal["machines", "program"] = "machines"
    """Who changes the Cilium of a cluster that runs. `machines`: Talos makes its objects once, and you apply a new
    version by hand; `program`: `up` applies it, object by object as preview shows. Talos makes them in both cases."""
    nodes: dict[NodeName, NodeSpec] = Field(min_length=1)
    """Machines by host name; their order has no effect."""
    roles: dict[Literal["controlplane", "worker", "hgx"], MachineKeys] = Field(default_factory=dict)
    """What all machines of a role have in common."""
    hgx: HgxSpec = Field(default_factory=HgxSpec)
    """The HGX nodes' driver, RDMA and storage."""
    firewall: FirewallSpec | None = None
    """Who may reach the machines; without it, every address."""
    registries: RegistriesSpec = Field(default_factory=RegistriesSpec)
    """Where machines get images from."""
    trusted_roots: dict[str, str] = Field(default_factory=dict)
    """CA certificates (PEM) by name that machines trust in addition to the usual ones."""
    time_servers: tuple[str, ...] = ()
    """NTP servers; Talos's own default if left out."""
    resolvers: tuple[str, ...] = ()
    """DNS servers by address; DHCP's or Talos's own default if left out."""
    watchdog_s: float | None = Field(default=None, ge=10, le=6553)
    """A machine whose Talos hangs for this long is reset by its hardware watchdog; IPMI counts to 6553 s."""
    kernel_log: str | None = None
    """Where kernel logs go: `tcp://HOST:PORT` or `udp://HOST:PORT`."""
    log_destination: str | None = None
    """Where Talos's own logs go: `tcp://HOST:PORT` or `udp://HOST:PORT`."""
    discovery: str = "off"
    """How members learn about each other: off, public (the vendor's service), or a service's address."""
    api_server_sans: tuple[str, ...] = ()
    """Further names of the Kubernetes API."""
    secrets: Keeping = "protected"
    """Whether `destroy` may delete the cluster's secrets: protected refuses, since nothing can bring them back."""
    secrets_import: str | None = None
    """File with the secrets bundle of a cluster that exists already, read once when the stack has none."""
    etcd_backup: EtcdBackupSpec | None = None
    """Snapshots of etcd by schedule, into a bucket; without it you take them yourself."""
    administrators: AdministratorsSpec | None = None
    """People who use the Kubernetes API by their own login; without it, only those who can read the stack's state."""
    audit: AuditSpec | None = None
    """What API servers record of who changed what; without it, Talos's own: each request without its body, 30 days or
    1.1 GB on each control plane."""
    credentials_rotation: int = Field(default=1, ge=1)
    """Increase it to issue kubeconfig and talosconfig again; each is valid for a year."""
    parallel: int = Field(default=8, ge=1)
    """Machines that are installed at once."""
    drain_timeout_s: int = Field(default=1800, ge=1, le=MOST_SECONDS)
    """How long pods may take to leave a node; a minute longer than the longest `longest_stream_s`."""
