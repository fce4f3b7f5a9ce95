"""Nodes on which a volume of a class can be mounted, and whether they are enough for PostgreSQL's servers."""

from __future__ import annotations

from collections.abc import Iterator

from components.placing import ANYWHERE, Placing
from floor import storage_nodes
from floor.problems import Problem
from floor.taints import tolerations
from stacks.plan.database import database_volume_class, own_databases
from stacks.plan.disks import disks_of
from stacks.plan.infra_nodes import takers
from stacks.plan.monitoring import longhorn_copies
from stacks.plan.node_taints import gpu_node_taints
from stacks.site.model import SiteConfig


def storing_nodes(site: SiteConfig, storage_class: str) -> Placing:
    """Longhorn mounts volumes where it stores; others mount them anywhere, and the taint of nodes with GPUs holds."""
    if longhorn_copies(site, storage_class=storage_class) is None:
        return ANYWHERE
    selected = {storage_nodes.LABEL: storage_nodes.VALUE} if disks_of(site) else {}
    return Placing(node_selector=selected, tolerations=tuple(tolerations(gpu_node_taints(site))))


def crowded_servers(site: SiteConfig) -> Iterator[Problem]:
    """More servers of the platform's PostgreSQL than nodes that can mount their volumes, as no node has two."""
    if not own_databases(site) or site.cluster.machines is None:
        return
    named = database_volume_class(site)
    on_disks = longhorn_copies(site, storage_class=named) is not None
    if not on_disks and site.storage.system == "longhorn" and named.startswith(site.storage.storage_class):
        return  # It is refused as one that nothing makes.
    there = {disk.node for disk in disks_of(site) or ()} if on_disks else takers(site).keys()
    wanted = site.database.instances
    if len(there) < wanted:
        yield Problem(
            path=("database", "instances"),
            what=f"is more servers than nodes can mount volumes of class {named}, and no node has two",
            got=f"{wanted} servers, {len(there)} such nodes",
            fix=f"add nodes of role {'hgx with disks for Longhorn' if on_disks else 'worker'}, or set database.run_by "
            "to external",
        )
