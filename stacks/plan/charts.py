"""Which of the pinned charts and definitions a site lets the program install."""

from __future__ import annotations

from pathlib import Path

from components.addons import registry
from stacks.facts import versions
from stacks.site.model import SiteConfig


def brings_cilium(site: SiteConfig) -> bool:
    """Whether the machines' configs bring the pod network."""
    machines = site.cluster.machines
    return machines is not None and machines.cni == "cilium"


def announces_by_bgp(site: SiteConfig) -> bool:
    """Whether this Cilium announces the addresses of load balancers to routers."""
    return site.addresses.announced_by == "cilium_bgp"


def cilium_manifest(site: SiteConfig) -> Path | None:
    """Where the site has Cilium's manifest; None for sites that bring none.

    Without the key, sites with BGP have a file of their own, so that a folder holds sites of both kinds.
    """
    machines = site.cluster.machines
    if machines is None or machines.cni != "cilium":
        return None
    file = machines.cilium_manifest
    by_key = "cilium_manifest" in machines.model_fields_set
    return file if by_key or not announces_by_bgp(site) else file.with_name(f"{file.stem}-bgp{file.suffix}")


def installed_charts(site: SiteConfig) -> list[str]:
    """Their names in versions.yaml, in the order of the addons."""
    return [chart.name for addon in registry.installed(site) for chart in addon.charts]


def optional_parts(site: SiteConfig) -> list[str]:
    """What this program installs that needs definitions of its own; no other site gets them."""
    installed = {addon.key for addon in registry.installed(site)}
    return [part for part in versions.load().optional_parts if part in installed]
