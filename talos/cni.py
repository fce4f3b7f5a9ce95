"""The pod network: Cilium over KubePrism, or Talos's own flannel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Talos's load balancer for the API server on every machine: works before any pod network does.
KUBE_PRISM_PORT = 7445

_AGENT_CAPABILITIES = """
CHOWN KILL NET_ADMIN NET_RAW IPC_LOCK SYS_ADMIN SYS_RESOURCE DAC_OVERRIDE FOWNER SETGID SETUID
"""
_CLEANING_CAPABILITIES = ["NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"]


@dataclass(frozen=True, kw_only=True)
class Flannel:
    """Talos brings the pod network itself; no network policies."""

    @property
    def name(self) -> str:
        return "flannel"


@dataclass(frozen=True, kw_only=True)
class Cilium:
    """Cilium in place of kube-proxy too. `manifest` is its rendered chart: Talos applies it at bootstrap.

    Without a manifest somebody must install Cilium right after bootstrap: until then no node is Ready, and Talos
    restarts a bootstrap that hangs for about ten minutes.
    """

    manifest: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return "cilium"


CNI = Cilium | Flannel


def cilium_values() -> dict[str, Any]:
    """What Cilium's chart must be told on Talos, whatever else a site tells it."""
    return {
        "ipam": {"mode": "kubernetes"},
        "kubeProxyReplacement": True,
        "k8sServiceHost": "localhost",
        "k8sServicePort": KUBE_PRISM_PORT,
        # Talos mounts cgroup v2 itself and lets no pod load kernel modules.
        "cgroup": {"autoMount": {"enabled": False}, "hostRoot": "/sys/fs/cgroup"},
        "securityContext": {
            "capabilities": {
                "ciliumAgent": _AGENT_CAPABILITIES.split(),
                "cleanCiliumState": list(_CLEANING_CAPABILITIES),
            }
        },
    }
