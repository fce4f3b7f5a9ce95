"""How nodes with GPUs differ: what replicas ask for, select and tolerate there."""

from __future__ import annotations

RESOURCE = "nvidia.com/gpu"
"""Name of the resource that the device plugin counts."""
_SLICE = "nvidia.com/mig-"
MIG_LAYOUT_LABEL = "nvidia.com/mig.config"
"""Label by which a node asks NVIDIA's MIG manager for a layout of its GPUs."""
RUNTIME_CLASS = "nvidia"
"""RuntimeClass of replicas, and the handler that Talos's container toolkit gives containerd."""
FAMILY_LABEL = "nvidia.com/gpu.family"
WHOLE_LABEL = "inference-platform/whole-node"
"""Label of nodes that the site's plan gives to a replica each: such replicas prefer them, smaller ones avoid them."""
PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"
"""By node feature discovery: a device of NVIDIA is on the PCI bus."""
TAINT_KEY, TAINT_VALUE, TAINT_EFFECT = "nvidia.com/gpu", "present", "NoSchedule"
"""The taint that a node with GPUs registers with, and the only one that replicas tolerate."""
MOST_OF_A_REPLICA = 4
"""Nodes of a replica, beyond which neither a site has one nor the proof looks at one."""


def resource_of(profile: str = "") -> str:
    """Name of the resource of whole GPUs, or of slices of a profile, as MIG strategy `mixed` counts them.

    Source: NVIDIA k8s-device-plugin 0.20.0 (internal/lm/mig-strategy.go).
    """
    return f"{_SLICE}{profile}" if profile else RESOURCE


def profile_of(resource: str) -> str:
    """The profile whose slices a resource counts; empty for any other resource."""
    return resource.removeprefix(_SLICE) if resource.startswith(_SLICE) else ""


def is_resource(name: str) -> bool:
    """Whether a container that asks for this resource has a GPU, or a slice of one."""
    return name == RESOURCE or name.startswith(_SLICE)
