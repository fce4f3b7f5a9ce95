"""What emulated machines cause in the lab's own cluster: a real control plane, and real Node objects that KWOK keeps.

A control plane machine creates the control plane at bootstrap, and switches it on and off with itself. A node that a
machine is behind has KWOK's annotation, and the lab's stages make such nodes ready. When the machine is gone the
annotation is taken away, and the node's Ready condition shows what became of it.

Who writes a Node: its kubelet and, on workers, Talos with the kubelet's certificate, so that Node authorizer and
NodeRestriction judge them; on control planes Talos is an administrator, as it is on a site. The lab's administrator
writes the rest: for KWOK (annotation, conditions, lease), in place of NVIDIA's controllers (labels), of the node
lifecycle controller (Ready) and of a cordon by Talos (unschedulable). Capacity is the kubelet's, GPUs included.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import grpc
import yaml
from kubernetes import client, dynamic
from urllib3.exceptions import HTTPError

from lab.cluster import api, controlplane, services
from lab.cluster.parts import metadata_of, name_of, namespace_of
from lab.errors import LabError
from lab.machines import lab_rack, node_object
from lab.machines.cluster_hooks import ControlPlane
from lab.machines.kubernetes_pki import control_plane_pki, kubelet_client
from lab.machines.node_object import NodeFacts
from lab.paths import Lab
from talos.secrets.pki import KeyPair, base64_of

_KWOK_ANNOTATION = "kwok.x-k8s.io/node"
_ETCD = "127.0.0.1:2379"
_READY_WITHIN_S = 120.0
_FAREWELL_S = 3
_CONFLICT = 409


class KwokCluster:
    """The cluster of a lab whose supervisor runs; it has one control plane, however many machines claim to run it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._changing = threading.Lock()
        self._kubelets: dict[tuple[str, str], KeyPair] = {}

    def control_plane_up(self, plane: ControlPlane) -> None:
        """As Cluster.control_plane_up; everything that Talos itself brings is there afterwards."""
        with self._changing:
            controlplane.create(self._lab, control_plane_pki(plane.kubernetes_ca, _names(self._lab, plane)))
            controlplane.wait_ready(self._lab, _READY_WITHIN_S)
            services.apply(self._lab)
            with api.connect(self._lab) as connection:
                _create_missing(connection, plane)

    def control_plane_down(self) -> None:
        """As Cluster.control_plane_down: the supervisor ends it."""
        if self._lab.kubeconfig.exists():
            with suppress(client.ApiException, HTTPError, OSError), api.connect(self._lab) as connection:
                # KWOK's next run has another name, and would wait 40 s until what this one holds is over.
                client.CoordinationV1Api(connection).delete_collection_namespaced_lease(
                    "kube-node-lease", _request_timeout=_FAREWELL_S
                )
        controlplane.switch_off(self._lab)

    def etcd_wiped(self) -> None:
        """As Cluster.etcd_wiped."""
        with self._changing:
            controlplane.drop(self._lab)

    def is_up(self) -> bool:
        """As Cluster.is_up."""
        return controlplane.is_ready(self._lab)

    def kubeconfig(self, plane: ControlPlane) -> str:
        """As Cluster.kubeconfig: like Talos's, of the config alone, so that there is one before the API answers."""
        name = plane.cluster_name
        pki = control_plane_pki(plane.kubernetes_ca, ("admin",))
        user = {
            "client-certificate-data": base64_of(pki["admin.crt"]),
            "client-key-data": base64_of(pki["admin.key"]),
        }
        cluster = {"server": plane.endpoint, "certificate-authority-data": base64_of(pki["ca.crt"])}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": f"admin@{name}", "user": user}],
            "contexts": [{"name": f"admin@{name}", "context": {"cluster": name, "user": f"admin@{name}"}}],
            "current-context": f"admin@{name}",
        }
        return yaml.safe_dump(content, sort_keys=False)

    def node_ready(self, node: NodeFacts) -> None:
        """As Cluster.node_ready; what is on its disks stays, also while no volume is mounted there."""
        for path in node.mounts:
            self._lab.node_folder(node.name, path).mkdir(parents=True, exist_ok=True)
        with self.as_kubelet(node.name) as connection:
            core = client.CoreV1Api(connection)
            if _find(core, node.name) is None:
                core.create_node(client.V1Node.model_validate(node_object.new(node)))
            else:
                core.patch_node(node.name, {"metadata": {"labels": node.kubelet_labels}})
            api.apply(connection, _status(node), subresource="status")
        with api.connect(self._lab) as connection:
            core = client.CoreV1Api(connection)
            changes = node_object.gpu_labels(metadata_of(core.read_node(node.name)).labels or {}, node)
            # It makes the node ready, and pods must then find its true size.
            annotations = {_KWOK_ANNOTATION: "fake"}
            core.patch_node(node.name, {"metadata": {"labels": changes, "annotations": annotations}})

    def node_settings(self, node: NodeFacts) -> None:
        """As Cluster.node_settings: LabError with the API server's words where it refuses."""
        with api.connect(self._lab) if node.is_control_plane else self.as_kubelet(node.name) as connection:
            core = client.CoreV1Api(connection)
            try:
                present = connection.sanitize_for_serialization(core.read_node(node.name))
                changed = node_object.with_settings(present, node)
                if changed != present:
                    core.replace_node(node.name, client.V1Node.model_validate(changed))
            except client.ApiException as error:
                raise LabError(_message(error), fix="see the machine's config") from None

    def as_kubelet(self, name: str) -> client.ApiClient:
        """A client with the certificate of the node's kubelet."""
        pki = controlplane.cluster_folder(self._lab) / "pki"
        authority = KeyPair((pki / "ca.crt").read_text(), (pki / "ca.key").read_text())
        pair = self._kubelets.get((authority.certificate, name)) or kubelet_client(authority, name)
        self._kubelets[authority.certificate, name] = pair
        user = {
            "client-certificate-data": base64_of(pair.certificate),
            "client-key-data": base64_of(pair.key),
        }
        return api.connect_as(self._lab, user)

    def node_not_ready(self, name: str, why: str) -> None:
        """As Cluster.node_not_ready; its pods are not ready either, and the pod runner ends their containers."""
        with api.connect(self._lab) as connection:
            core = client.CoreV1Api(connection)
            if _find(core, name) is None:
                return
            core.patch_node(name, {"metadata": {"annotations": {_KWOK_ANNOTATION: None}}})
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = {
                "type": "Ready",
                "status": "False",
                "reason": "KubeletNotReady",
                "message": why,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            core.patch_node_status(name, {"status": {"conditions": [condition]}})
            # Kubernetes does this itself for a node that it misses, but only after most of a minute.
            for pod in core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={name}").items:
                unready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
                core.patch_namespaced_pod_status(name_of(pod), namespace_of(pod), {"status": {"conditions": [unready]}})

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        """As Cluster.cordon."""
        with api.connect(self._lab) as connection:
            client.CoreV1Api(connection).patch_node(name, {"spec": {"unschedulable": unschedulable}})

    def etcd_snapshot(self) -> bytes:
        """As Cluster.etcd_snapshot, from the lab's etcd, which answers inside the lab's namespace alone."""
        with grpc.insecure_channel(_ETCD, options=(("grpc.max_receive_message_length", 16 << 20),)) as channel:
            try:
                snapshot: grpc.UnaryStreamMultiCallable[bytes, bytes]
                snapshot = channel.unary_stream("/etcdserverpb.Maintenance/Snapshot")
                return b"".join(_blob(part) for part in snapshot(b"", timeout=60))
            except grpc.RpcError as error:
                raise LabError(
                    f"etcd gives no snapshot: {error.code().name}", fix="see `python -m lab status`"
                ) from None

    def recover_etcd(self, snapshot: bytes) -> None:
        """As Cluster.recover_etcd: the next control plane begins with it."""
        file = controlplane.snapshot_file(self._lab)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_bytes(snapshot)


def _names(lab: Lab, plane: ControlPlane) -> tuple[str, ...]:
    """Names in the API server's certificate. Talos adds the addresses of its own machine; here it has all machines'."""
    return (*controlplane.api_names(lab), *_hosts(plane), *lab_rack.addresses(lab))


def _hosts(plane: ControlPlane) -> Iterator[str]:
    """Names of the API server by the machine's config."""
    yield from plane.api_server_names
    if host := urlsplit(plane.endpoint).hostname:
        yield host


def _create_missing(connection: client.ApiClient, plane: ControlPlane) -> None:
    """The config's inline manifests: Talos makes what is missing, and changes nothing."""
    resources = dynamic.DynamicClient(connection)
    for text in plane.inline_manifests:
        for manifest in filter(None, yaml.safe_load_all(text)):
            kind = resources.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
            try:
                resources.create(kind, body=manifest, namespace=manifest["metadata"].get("namespace"))
            except client.ApiException as error:
                if error.status != _CONFLICT:
                    raise


def _find(core: client.CoreV1Api, name: str) -> client.V1Node | None:
    try:
        return core.read_node(name)
    except client.ApiException as error:
        if error.status == 404:
            return None
        raise


def _message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body or "{}")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


def _status(node: NodeFacts) -> api.Manifest:
    unsaid = dict.fromkeys(("kernelVersion", "kubeProxyVersion", "machineID", "systemUUID"), "")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name},
        "status": {
            "addresses": [
                *({"type": "InternalIP", "address": address} for address in node.addresses),
                {"type": "Hostname", "address": node.name},
            ],
            "capacity": node.capacity,
            "allocatable": node.capacity,
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": node.kubelet_version,
                "containerRuntimeVersion": "lab-runner://1",
                "osImage": node.os_image,
                "bootID": node.boot_id,
                **unsaid,
            },
        },
    }


def _blob(message: bytes) -> bytes:
    """Field 3 of etcd's SnapshotResponse: a part of the database file."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value, at = _varint(message, at)
        if kind == 2:
            if number == 3:
                return message[at : at + value]
            at += value
    return b""


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = message[at]
        value |= (octet & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if octet < 0x80:
            return value, at
