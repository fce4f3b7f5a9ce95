"""What follows from an emulated machine's hardware: sizes, and the labels that GPU feature discovery would find.

Those of a real HGX H200 node under the GPU operator, so that what the scheduler and the platform's selectors do here is
what they do on a site.
"""

from __future__ import annotations

from lab.machines.spec import Hardware

GPU_RESOURCE = "nvidia.com/gpu"

_INFRA = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_HGX_H200 = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "4Ti", "pods": "110", GPU_RESOURCE: "8"}

# What GPU feature discovery and the operator set on an HGX H200 node; memory in MiB.
GPU_LABELS = {
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


def capacity(hardware: Hardware, *, has_gpus: bool) -> dict[str, str]:
    """Quantities of a node on this hardware; without GPUs where none can be used."""
    size = _HGX_H200 if hardware == "hgx-h200" else _INFRA
    return {name: value for name, value in size.items() if has_gpus or name != GPU_RESOURCE}


def labels(name: str, hardware: Hardware, *, has_gpus: bool) -> dict[str, str]:
    """What the kubelet and, where GPUs can be used, GPU feature discovery report of the node."""
    return {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": hardware,
        "type": "kwok",
        **(GPU_LABELS if has_gpus else {}),
    }
