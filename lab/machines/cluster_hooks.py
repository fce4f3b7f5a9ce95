"""What emulated machines cause in a Kubernetes cluster: the protocol, and a cluster that only records."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import Protocol

import yaml

from talos.secrets.pki import KeyPair, base64_of


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """What a machine's config sets of the control plane that it is to run. CAs are PEM."""

    cluster_name: str
    endpoint: str
    kubernetes_version: str
    pod_subnets: tuple[str, ...]
    service_subnets: tuple[str, ...]
    kubernetes_ca: KeyPair = field(repr=False)
    api_server_names: tuple[str, ...] = ()
    inline_manifests: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Taint:
    """As in a Node's spec."""

    key: str
    value: str
    effect: str

    def wire(self) -> dict[str, str]:
        return {"key": self.key, "effect": self.effect, **({"value": self.value} if self.value else {})}


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """The node that a machine registers, as its config, schematic and hardware imply it. Quantities as Kubernetes'."""

    name: str
    addresses: tuple[str, ...]
    pod_cidr: str
    kubelet_version: str
    api_server_version: str
    """Of a control plane; empty on workers."""
    os_image: str
    boot_id: str
    capacity: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    mounts: tuple[str, ...] = ()
    """Where volumes of the site's own are mounted."""
    no_gpus_because: str = ""
    """Why a machine with GPUs in it offers none; empty where all is well."""


class ClusterHooks(Protocol):
    """Calls come from any machine's thread, and are repeated after an exception until they succeed or power is lost."""

    def control_plane_up(self, plane: ControlPlane) -> None:
        """A control plane machine runs: at bootstrap, and at every boot afterwards. Must bear repetition."""

    def control_plane_down(self) -> None:
        """The last machine that ran it goes down; its data stays. Must bear repetition."""

    def etcd_wiped(self) -> None:
        """The last machine of its etcd was wiped: the cluster is no more, and a bootstrap makes another one."""

    def is_up(self) -> bool:
        """Whether the Kubernetes API answers."""

    def kubeconfig(self, plane: ControlPlane) -> str:
        """An administrator's kubeconfig."""

    def node_ready(self, node: NodeFacts) -> None:
        """The kubelet registers its node, or brings it to these facts."""

    def node_not_ready(self, name: str, why: str) -> None:
        """The kubelet is gone. The Node object stays, as it does when a machine breaks or is reset."""

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        """Keep new pods off the node, or no longer."""

    def etcd_snapshot(self) -> bytes:
        """etcd's database with the SHA-256 that etcd appends."""

    def recover_etcd(self, snapshot: bytes) -> None:
        """Start etcd from a snapshot, before the control plane comes up."""


class RecordedCluster:
    """A cluster that only remembers: for racks without Kubernetes, and tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.planes: list[ControlPlane] = []
        self.nodes: dict[str, NodeFacts] = {}
        self.not_ready: dict[str, str] = {}
        self.cordoned: set[str] = set()
        self.recovered: bytes | None = None
        self.running = False
        self.wiped = 0

    def control_plane_up(self, plane: ControlPlane) -> None:
        with self._lock:
            self.planes.append(plane)
            self.running = True

    def control_plane_down(self) -> None:
        self.running = False

    def etcd_wiped(self) -> None:
        with self._lock:
            self.wiped += 1
            self.nodes.clear()
            self.not_ready.clear()

    def is_up(self) -> bool:
        return self.running

    def kubeconfig(self, plane: ControlPlane) -> str:
        """One that names the endpoint and the CA of the config; its user has no certificate."""
        authority = base64_of(plane.kubernetes_ca.certificate)
        name = plane.cluster_name
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": {"server": plane.endpoint, "certificate-authority-data": authority}}
            ],
            "users": [{"name": f"admin@{name}", "user": {}}],
            "contexts": [{"name": f"admin@{name}", "context": {"cluster": name, "user": f"admin@{name}"}}],
            "current-context": f"admin@{name}",
        }
        return yaml.safe_dump(content, sort_keys=False)

    def node_ready(self, node: NodeFacts) -> None:
        with self._lock:
            self.nodes[node.name] = node
            self.not_ready.pop(node.name, None)

    def node_not_ready(self, name: str, why: str) -> None:
        with self._lock:
            if name in self.nodes:
                self.not_ready[name] = why

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        with self._lock:
            (self.cordoned.add if unschedulable else self.cordoned.discard)(name)

    def etcd_snapshot(self) -> bytes:
        """Pages of zeros with their digest."""
        pages = bytes(1 << 16)
        return pages + hashlib.sha256(pages).digest()

    def recover_etcd(self, snapshot: bytes) -> None:
        self.recovered = snapshot
