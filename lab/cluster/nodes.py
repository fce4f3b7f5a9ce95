"""The emulated machines as Node objects: one for infrastructure without a GPU, and HGX H200 nodes.

Sizes and labels are those of a real HGX H200 node under the GPU operator, so that what the scheduler and the
platform's selectors do here is what they do on a site. KWOK keeps the nodes ready; the pod runner runs their pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kubernetes import client

from lab.cluster import api, network
from lab.errors import LabError
from lab.paths import Lab, NetworkPlan

Role = Literal["infra", "hgx-h200"]
MOST_NODES = 31
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}

_KUBELET = "v1.36.3"
_INFRA_CAPACITY = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_HGX_CAPACITY = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "4Ti", "pods": "110", "nvidia.com/gpu": "8"}

# What GPU feature discovery and the operator set on an HGX H200 node; memory in MiB.
_GPU_LABELS = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/cuda.driver-version.full": "595.91.07",
    "nvidia.com/cuda.driver-version.major": "595",
    "nvidia.com/cuda.driver-version.minor": "91",
    "nvidia.com/cuda.driver-version.revision": "07",
    "nvidia.com/cuda.runtime-version.full": "13.2",
    "nvidia.com/cuda.runtime-version.major": "13",
    "nvidia.com/cuda.runtime-version.minor": "2",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.deploy.gpu-feature-discovery": "true",
    "nvidia.com/gpu.deploy.mig-manager": "true",
    "nvidia.com/gpu.deploy.node-status-exporter": "true",
    "nvidia.com/gpu.deploy.operator-validator": "true",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.machine": "HGX-H200",
    "nvidia.com/gpu.memory": "143771",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/mig.strategy": "single",
}


@dataclass(frozen=True, kw_only=True)
class LabNode:
    """One emulated machine. `ordinal` (from 0) gives its address and its pods' subnet, and never changes."""

    name: str
    role: Role
    ordinal: int


def machines(hgx: int) -> list[LabNode]:
    """`infra-1`, then `hgx-1` to `hgx-N`; raises `LabError` beyond what the address plan holds."""
    if not 0 <= hgx < MOST_NODES:
        raise LabError(
            f"{hgx} HGX nodes do not fit a lab: its address plan holds 0 to {MOST_NODES - 1}",
            fix=f"give --hgx a number from 0 to {MOST_NODES - 1}",
        )
    gpu_nodes = (LabNode(name=f"hgx-{n}", role="hgx-h200", ordinal=n) for n in range(1, hgx + 1))
    return [LabNode(name="infra-1", role="infra", ordinal=0), *gpu_nodes]


def node_manifest(node: LabNode, plan: NetworkPlan) -> api.Manifest:
    """The Node as a machine of this role would register it, without its status."""
    has_gpu = node.role == "hgx-h200"
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": node.role,
        "type": "kwok",
        **(_GPU_LABELS if has_gpu else {"node-role.kubernetes.io/infra": ""}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {
            "podCIDR": str(plan.node_pods(node.ordinal)),
            "podCIDRs": [str(plan.node_pods(node.ordinal))],
            "providerID": f"lab://{node.name}",
            **({"taints": [GPU_TAINT]} if has_gpu else {}),
        },
    }


def node_status(node: LabNode, plan: NetworkPlan) -> api.Manifest:
    """Its status as far as the machine decides it; KWOK adds the conditions."""
    size = _HGX_CAPACITY if node.role == "hgx-h200" else _INFRA_CAPACITY
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": str(plan.node_address(node.ordinal))},
                {"type": "Hostname", "address": node.name},
            ],
            "capacity": size,
            "allocatable": size,
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": _KUBELET,
                "containerRuntimeVersion": "lab-runner://1",
                "osImage": "emulated machine",
                **dict.fromkeys(("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "systemUUID"), ""),
            },
        },
    }


def ensure(lab: Lab, wanted: list[LabNode]) -> None:
    """Bring the cluster's nodes to this list: create, correct sizes and addresses, remove those in it no more."""
    plan = lab.network
    with api.connect(lab) as connection:
        core = client.CoreV1Api(connection)
        present = {node.metadata.name for node in core.list_node().items}
        for name in present - {node.name for node in wanted}:
            core.delete_node(name)
        for node in wanted:
            network.own_address(lab, plan.node_address(node.ordinal))
            if node.name not in present:
                # A first apply would leave the taints to whoever writes next; admission adds its own to a create.
                core.create_node(node_manifest(node, plan))
        for node in wanted:
            api.apply(connection, node_status(node, plan), subresource="status")
