"""A container that does nothing, for as long as its pod runs."""

from __future__ import annotations

from typing import Any

from components.pod_security import CONTAINER_SECURITY

_PROGRAM = "import signal; signal.signal(15, lambda *_: exit()); signal.pause()"


def holding(name: str, image: str) -> dict[str, Any]:
    """image: one with Python, as vLLM's; none of the node's GPUs is in it."""
    return {
        "name": name,
        "image": image,
        # In NVIDIA's runtime class, the image's own value would give it every GPU of the node.
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "command": ["python3", "-c", _PROGRAM],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": dict(CONTAINER_SECURITY),
    }
