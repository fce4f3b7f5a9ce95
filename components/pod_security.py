"""What a pod of the program's own may do on its node: nothing but run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_security(user: int) -> dict[str, Any]:
    """Of a whole pod that runs as this user, also as a group; it may write its volumes, and nothing is root."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
