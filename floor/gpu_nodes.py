"""How nodes with GPUs differ: what replicas ask for, select and tolerate there."""

from __future__ import annotations

RESOURCE = "nvidia.com/gpu"
"""Name of the resource that the device plugin counts."""
RUNTIME_CLASS = "nvidia"
"""RuntimeClass of replicas, and the handler that Talos's container toolkit gives containerd."""
FAMILY_LABEL = "nvidia.com/gpu.family"
TAINT_KEY, TAINT_VALUE, TAINT_EFFECT = "nvidia.com/gpu", "present", "NoSchedule"
"""The taint that a node with GPUs registers with, and the only one that replicas tolerate."""
