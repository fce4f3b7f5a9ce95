"""What emulated machines cause in a Kubernetes cluster: the protocol, and a cluster that only records."""

from __future__ import annotations

import hashlib
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import yaml

from lab.errors import LabError
from lab.machines import node_object
from lab.machines.node_object import Node, NodeFacts
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
        """The kubelet registers its node or reports its status, and what else makes it ready does so."""

    def node_settings(self, node: NodeFacts) -> None:
        """Talos sets labels, annotations and taints, in one update. Raises what refuses it."""

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
        self._lock: AbstractContextManager[object] = threading.Lock()
        self.planes: list[ControlPlane] = []
        self.nodes: dict[str, NodeFacts] = {}
        self.objects: dict[str, Node] = {}
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
            self.objects.clear()
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
            present = self.read(node.name) or node_object.new(node)
            labels = present["metadata"]["labels"] | node.kubelet_labels
            labels |= node_object.gpu_labels(labels, node)
            kept = {key: text for key, text in labels.items() if text is not None}
            self.write(self.described({**present, "metadata": {**present["metadata"], "labels": kept}}, node))

    def node_settings(self, node: NodeFacts) -> None:
        """NodeRestriction is emulated: no API server runs here."""
        with self._lock:
            present = self.read(node.name)
            if present is None:
                raise LabError(f'nodes "{node.name}" not found', fix="reboot the machine, which registers it again")
            changed = node_object.with_settings(present, node)
            if not node.is_control_plane and (refusal := node_object.refusal(present, changed)):
                raise LabError(refusal, fix="register the node with its taints; leave labels of Kubernetes out")
            self.write(changed)

    def described(self, present: Node, node: NodeFacts) -> Node:
        """The Node object with its status."""
        return {**present, "status": {"capacity": node.capacity}}

    def read(self, name: str) -> Node | None:
        """The Node object, if there is one."""
        return self.objects.get(name)

    def write(self, node: Node) -> None:
        """Keep a Node object."""
        self.objects[node["metadata"]["name"]] = node

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
