"""Taints that pods of addons meet on a site's nodes."""

from __future__ import annotations

from floor.taints import GPU_TAINT, Taint, read_taint
from stacks.plan.machine_documents import merged_keys
from stacks.site.model import SiteConfig


def gpu_node_taints(site: SiteConfig) -> list[Taint]:
    """Those of the nodes with GPUs: the platform's own, then the site's; the former alone for unknown nodes."""
    return _taints(site, ("hgx",))


def node_taints(site: SiteConfig) -> list[Taint]:
    """Those of all nodes but control planes, in the same order."""
    return _taints(site, ("hgx", "worker"))


def _taints(site: SiteConfig, roles: tuple[str, ...]) -> list[Taint]:
    machines = site.cluster.machines
    taints = [GPU_TAINT]
    for _, node in sorted(machines.nodes.items()) if machines else ():
        if machines and node.role in roles:
            taints += [read_taint(key, text) for key, text in sorted(merged_keys(machines, node).taints.items())]
    return list(dict.fromkeys(taints))
