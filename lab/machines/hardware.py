"""What follows from an emulated machine's hardware: sizes, and the labels that GPU feature discovery would find.

Those of a real HGX H200 node under the GPU operator, so that what the scheduler and the platform's selectors do here is
what they do on a site.
"""

from __future__ import annotations

import re

from lab.machines.spec import Hardware

GPU_RESOURCE = "nvidia.com/gpu"
MIG_LAYOUT = "nvidia.com/mig.config"
"""Label by which a node asks NVIDIA's MIG manager to cut its GPUs."""
_GPUS = 8
_CUT = re.compile(r"all-([1-7]g\.[0-9]+gb)")
# Slices of one GPU by profile, as its driver makes them of an H200 (NVIDIA MIG User Guide, Supported MIG Profiles); of
# the project's own facts nothing is read, so that a mistake in them shows.
_SLICES = {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1}

_INFRA = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_HGX_H200 = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "4Ti", "pods": "110", GPU_RESOURCE: f"{_GPUS}"}

MIG_DISABLED = "all-disabled"
"""What the GPU operator sets it to on a node without that label (gpu-operator, controllers/state_manager.go)."""
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
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/mig.strategy": "single",
}


def capacity(hardware: Hardware, *, has_gpus: bool, layout: str = "") -> dict[str, str]:
    """Quantities of a node on this hardware; without GPUs where none can be used.

    layout: value of the label by which the node asks for slices. They emulate what MIG manager and device plugin of
    NVIDIA do with strategy mixed: nothing is cut.
    """
    size = _HGX_H200 if hardware == "hgx-h200" else _INFRA
    own = {name: value for name, value in size.items() if has_gpus or name != GPU_RESOURCE}
    if has_gpus and (profile := _profile(layout)):
        own |= {GPU_RESOURCE: "0", f"nvidia.com/mig-{profile}": f"{_GPUS * _SLICES[profile]}"}
    return own


def kubelet_labels(name: str, hardware: Hardware) -> dict[str, str]:
    """What the kubelet registers the node with, and `type`, by which the lab's nodes are known."""
    return {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": hardware,
        "type": "kwok",
    }


def gpu_labels(layout: str = "") -> dict[str, str]:
    """What GPU feature discovery and the GPU operator set on a node whose GPUs can be used; layout as above."""
    return {**GPU_LABELS, **(_slice_labels(layout) if layout else {})}


def _profile(layout: str) -> str:
    """The profile that a layout cuts every GPU into; nothing for whole GPUs, and for one that an H200 lacks."""
    name = match[1] if (match := _CUT.fullmatch(layout)) else ""
    return name if name in _SLICES else ""


def _slice_labels(layout: str) -> dict[str, str]:
    """Labels of GPU feature discovery with strategy mixed (k8s-device-plugin 0.20.0, internal/lm/mig-strategy.go).

    Those of whole GPUs stay, and each kind of slice has its own. An unknown layout fails, as MIG manager has it.
    """
    profile = _profile(layout)
    known = bool(profile) or layout == "all-disabled"
    own = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.config.state": "success" if known else "failed"}
    if profile:
        start = f"nvidia.com/mig-{profile}"
        own |= {
            f"{start}.count": f"{_GPUS * _SLICES[profile]}",
            f"{start}.product": f"NVIDIA-H200-MIG-{profile}",
            f"{start}.replicas": "1",
            f"{start}.sharing-strategy": "none",
        }
    return own
