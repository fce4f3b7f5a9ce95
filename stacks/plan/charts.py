"""Which of the pinned charts a site lets the program install."""

from __future__ import annotations

from pathlib import Path

from stacks.site.model import SiteConfig

_GPU_STACKS = {"operator": ("gpu_operator",), "device_plugin": ("device_plugin", "dcgm_exporter"), "external": ()}


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
    """Their names in versions.yaml, in its order."""
    names = ["envoy_gateway", "ai_gateway"] if site.gateway.controllers == "chart" else []
    names += _GPU_STACKS[site.cluster.gpu_stack]
    names += ["network_operator"] if site.cluster.rdma_devices.system == "network_operator" else []
    names += ["cert_manager"] if site.certificates.system == "cert_manager" else []
    names += ["external_secrets"] if site.secrets.system == "external_secrets" else []
    names += ["longhorn"] if site.storage.system == "longhorn" else []
    return [*names, *(["metallb"] if site.addresses.announced_by == "metallb_l2" else [])]
