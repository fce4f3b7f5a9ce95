"""Nodes on which a volume of a class can be mounted."""

from __future__ import annotations

from components.placing import Placing
from floor import storage_nodes
from floor.taints import tolerations
from stacks.plan.disks import disks_of
from stacks.plan.monitoring import longhorn_copies
from stacks.plan.node_taints import gpu_node_taints
from stacks.site.model import SiteConfig


def storing_nodes(site: SiteConfig, storage_class: str) -> Placing:
    """Longhorn mounts volumes where it stores; others mount them anywhere, and the taint of nodes with GPUs holds."""
    if longhorn_copies(site, storage_class=storage_class) is None:
        return Placing(node_selector={}, tolerations=())
    selected = {storage_nodes.LABEL: storage_nodes.VALUE} if disks_of(site) else {}
    return Placing(node_selector=selected, tolerations=tuple(tolerations(gpu_node_taints(site))))
