"""What emulated machines cause in the lab's own cluster: real Node objects, kept ready by KWOK or let go.

A node that its machine stands behind has KWOK's annotation, and the lab's stages make such nodes ready. When the
machine is gone the annotation is taken away, and the node's Ready condition says what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc
from kubernetes import client

from lab.cluster import api, controlplane
from lab.errors import LabError
from lab.machines.cluster_hooks import ControlPlane, NodeFacts
from lab.paths import Lab

_KWOK_ANNOTATION = "kwok.x-k8s.io/node"
# Taints that Kubernetes itself puts on nodes; all others are the machine's.
_KUBERNETES_TAINTS = "node.kubernetes.io/"
_ETCD = "127.0.0.1:2379"
_READY_WITHIN_S = 120.0


class KwokCluster:
    """`start` creates the control plane at its first coming up; by default it must run already."""

    def __init__(self, lab: Lab, start: Callable[[ControlPlane], None] = lambda _: None) -> None:
        self._lab = lab
        self._start = start

    def control_plane_up(self, plane: ControlPlane) -> None:
        """As Cluster.control_plane_up."""
        self._start(plane)
        controlplane.wait_ready(self._lab, _READY_WITHIN_S)

    def is_up(self) -> bool:
        """As Cluster.is_up."""
        return controlplane.is_ready(self._lab)

    def kubeconfig(self, plane: ControlPlane) -> str:  # noqa: ARG002 - the lab's cluster has its own authority
        """As Cluster.kubeconfig: the lab's."""
        return self._lab.kubeconfig.read_text()

    def node_ready(self, node: NodeFacts) -> None:
        """As Cluster.node_ready."""
        with api.connect(self._lab) as connection:
            core = client.CoreV1Api(connection)
            present = _find(core, node.name)
            if present is None:
                # Taints and pod network first: pods must not come before the taints, and the network cannot be added.
                core.create_node(_new_node(node))
            else:
                _set_taints(core, present, node)
            # The annotation comes last: it makes the node ready, and pods must then find its true size.
            api.apply(connection, _status(node), subresource="status")
            api.apply(connection, _metadata(node))

    def node_not_ready(self, name: str, why: str) -> None:
        """As Cluster.node_not_ready."""
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

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        """As Cluster.cordon."""
        with api.connect(self._lab) as connection:
            client.CoreV1Api(connection).patch_node(name, {"spec": {"unschedulable": unschedulable}})

    def etcd_snapshot(self) -> bytes:
        """As Cluster.etcd_snapshot, from the lab's etcd, which answers inside the lab's namespace alone."""
        with grpc.insecure_channel(_ETCD, options=(("grpc.max_receive_message_length", 16 << 20),)) as channel:
            try:
                answer = channel.unary_stream("/etcdserverpb.Maintenance/Snapshot")(b"", timeout=60)
                return b"".join(_blob(each) for each in answer)
            except grpc.RpcError as error:
                raise LabError(
                    f"etcd gives no snapshot: {error.code().name}", fix="see `python -m lab status`"
                ) from None

    def recover_etcd(self, snapshot: bytes) -> None:  # noqa: ARG002 - says that it cannot
        """As Cluster.recover_etcd; LabError, because kwokctl starts etcd."""
        raise LabError(
            "the lab's cluster does not recover etcd from a snapshot", fix="bootstrap without a snapshot in the lab"
        )


def _find(core: client.CoreV1Api, name: str) -> Any:
    try:
        return core.read_node(name)
    except client.ApiException as error:
        if error.status == 404:
            return None
        raise


def _new_node(node: NodeFacts) -> api.Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name},
        "spec": {
            "podCIDR": node.pod_cidr,
            "podCIDRs": [node.pod_cidr],
            "providerID": f"lab://{node.name}",
            "taints": [each.wire() for each in node.taints],
        },
    }


def _metadata(node: NodeFacts) -> api.Manifest:
    # Applied with a manager of its own, so labels that the config has no more go away, and others' stay.
    annotations = {**node.annotations, _KWOK_ANNOTATION: "fake"}
    metadata = {"name": node.name, "labels": node.labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


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


def _set_taints(core: client.CoreV1Api, present: Any, node: NodeFacts) -> None:
    current = core.api_client.sanitize_for_serialization(present.spec.taints or [])
    kept = [each for each in current if each["key"].startswith(_KUBERNETES_TAINTS)]
    wanted = [*kept, *(each.wire() for each in node.taints)]
    if wanted != current:
        # A strategic merge would keep the taints that the config has no more.
        patch = [{"op": "add", "path": "/spec/taints", "value": wanted}]
        core.patch_node(node.name, patch)


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
