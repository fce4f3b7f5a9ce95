"""Which of the pinned charts and definitions a site lets the program install."""

from __future__ import annotations

from pathlib import Path

from components.addons import registry
from stacks.facts import versions
from stacks.facts.versions import CiliumVersion
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

    Without the key, each choice has a file of its own, so that a folder holds sites of all kinds.
    """
    machines = site.cluster.machines
    if machines is None or machines.cni != "cilium":
        return None
    file = machines.cilium_manifest
    if "cilium_manifest" in machines.model_fields_set:
        return file
    choice = ("-bgp" if announces_by_bgp(site) else "") + ("-measured" if site.measures_pod_network else "")
    return file.with_name(f"{file.stem}{choice}{file.suffix}")


def cilium_digest(site: SiteConfig, pin: CiliumVersion) -> str:
    """The pinned sha256 in hex of that file."""
    return pin.digest(bgp=announces_by_bgp(site), measured=site.measures_pod_network)


def installed_charts(site: SiteConfig) -> list[str]:
    """Their names in versions.yaml, in the order of the addons."""
    return [chart.name for addon in registry.installed(site) for chart in addon.charts]


def optional_parts(site: SiteConfig) -> list[str]:
    """What this program installs that needs definitions of its own; no other site gets them."""
    installed = {addon.key for addon in registry.installed(site)}
    return [part for part in versions.load().optional_parts if part in installed]
