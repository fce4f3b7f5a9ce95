"""node-exporter on every node: what the kernel counts of processors, memory, disks and links.

Prometheus finds it by the nodes' addresses (components/monitoring/host_scrapes.py), so that a node without one is seen.
"""

from __future__ import annotations

from typing import Any

from components.addons.addon import Addon, AddonChart, AddonComponent, AddonContent, AddonRelease, AddonSite
from floor import namespaces, node_ports

NAMESPACE = namespaces.HOSTS
RELEASE = "node-exporter"
# No figure of a run: it reads files and keeps nothing.
_SMALL = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "180Mi"}}
# Disks that pods or Talos write. Volumes of pods are their claims' to measure, and a container's layers are the disk's.
_DISK_TYPES = "^(ext4|xfs)$"
_OF_PODS = "^/(dev|proc|sys|run|var/lib/kubelet|var/lib/containerd)($|/)"
# Links of pods and of the pod network: some for each pod.
_VIRTUAL_LINKS = "^(lo|lxc.*|cilium_.*|veth.*|cali.*|flannel.*|dummy.*|kube-.*)$"


def node_exporter_values() -> dict[str, Any]:
    """Values of its chart: on the node's own address alone, and on every node, whatever its taints."""
    return {
        "fullnameOverride": RELEASE,
        "service": {"enabled": False, "port": node_ports.NODE_EXPORTER, "listenOnAllInterfaces": False},
        "tolerations": [{"operator": "Exists"}],
        "resources": _SMALL,
        "extraArgs": [
            f"--collector.filesystem.fs-types-include={_DISK_TYPES}",
            f"--collector.filesystem.mount-points-exclude={_OF_PODS}",
            f"--collector.netdev.device-exclude={_VIRTUAL_LINKS}",
            f"--collector.netclass.ignored-devices={_VIRTUAL_LINKS}",
        ],
    }


def content(site: AddonSite) -> AddonContent:
    """Works when Helm has seen a pod ready on each node. No policy holds for pods of the host's network."""
    chart = site.charts["node_exporter"]
    return AddonContent(releases=[AddonRelease(name=RELEASE, chart=chart, values=node_exporter_values())])


NODE_EXPORTER = Addon(
    key="node_exporter",
    switch="measures_hosts",
    on=True,
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="node_exporter",
            release=RELEASE,
            uninstalled="nodes are measured no more; nothing else changes",
            upgraded="its pods restart, one node at a time, and each node's metrics pause for seconds",
        ),
    ),
    component=AddonComponent(
        name="hosts",
        resource_type="node_exporter:NodeExporter",
        # The host's network and processes, and its disks to read.
        pod_security="privileged",
        content=content,
    ),
)
