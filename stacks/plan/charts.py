"""Which of the pinned charts a site lets the program install."""

from __future__ import annotations

from stacks.site.model import SiteConfig

_GPU_STACKS = {"operator": ("gpu_operator",), "device_plugin": ("device_plugin", "dcgm_exporter"), "external": ()}


def brings_cilium(site: SiteConfig) -> bool:
    """Whether the machines' configs bring the pod network."""
    machines = site.cluster.machines
    return machines is not None and machines.cni == "cilium"


def installed_charts(site: SiteConfig) -> list[str]:
    """Their names in versions.yaml, in its order."""
    names = ["envoy_gateway", "ai_gateway"] if site.gateway.controllers == "chart" else []
    names += _GPU_STACKS[site.cluster.gpu_stack]
    names += ["cert_manager"] if site.certificates.system == "cert_manager" else []
    names += ["longhorn"] if site.storage.system == "longhorn" else []
    return [*names, *(["metallb"] if site.addresses.announced_by == "metallb_l2" else [])]
