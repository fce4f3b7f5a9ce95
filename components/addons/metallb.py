"""MetalLB: assigns addresses of load balancers on clusters whose pod network does not, and answers ARP for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.network_policies import allow_ingress
from components.specs.addresses import AddressesSpec
from floor import namespaces
from floor.address_ranges import AddressRange, read_ranges
from floor.taints import Taint, tolerations

NAMESPACE = namespaces.ADDRESSES
_API = "metallb.io/v1beta1"
_POOL = "inference-platform"
_WEBHOOK_PORT = 9443
_SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}


def metallb_values(taints: Iterable[Taint]) -> dict[str, Any]:
    """Values of MetalLB's chart, by ARP alone. taints: of all nodes, since each may answer."""
    answered = tolerations(taints)
    return {
        # BGP's parts, which need peers.
        "frrk8s": {"enabled": False},
        # Its pod is ready before its webhook answers (metallb v0.16.1, internal/k8s/k8s.go:370), and the provider asks
        # once: the first `up` would end at the pool. A webhook that answers still refuses.
        "crds": {"validationFailurePolicy": "Ignore"},
        "controller": {"tolerations": answered, "resources": _SMALL},
        "speaker": {"frr": {"enabled": False}, "tolerations": answered, "resources": _SMALL},
        "prometheus": {"rbacPrometheus": False},
    }


def address_pool(ranges: Sequence[AddressRange]) -> dict[str, Any]:
    """The pool of every Service of type LoadBalancer."""
    return {
        "apiVersion": _API,
        "kind": "IPAddressPool",
        "metadata": {"name": _POOL, "namespace": NAMESPACE},
        "spec": {"addresses": [f"{block.first}-{block.last}" for block in ranges]},
    }


def advertisement() -> dict[str, Any]:
    """A node with a ready pod of the Service, or any for the policy Cluster, answers for each address of the pool."""
    return {
        "apiVersion": _API,
        "kind": "L2Advertisement",
        "metadata": {"name": _POOL, "namespace": NAMESPACE},
        "spec": {"ipAddressPools": [_POOL]},
    }


def content(site: AddonSite) -> AddonContent:
    """Works when the pool and its advertisement are there; MetalLB's own check of them answers soon after its pod."""
    ranges = read_ranges(site.spec(AddressesSpec).pool)
    return AddonContent(
        releases=[AddonRelease(name="metallb", chart=site.charts["metallb"], values=metallb_values(site.taints))],
        network_policies=[allow_ingress("metallb-webhook", NAMESPACE, {}, [((), [_WEBHOOK_PORT])])],
        objects=[
            AddonObject(suffix="pool", body=address_pool(ranges)),
            AddonObject(suffix="advertisement", body=advertisement(), after=["pool"]),
        ],
    )


METALLB = Addon(
    key="metallb",
    switch="addresses.announced_by",
    on="metallb_l2",
    section="addresses",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="metallb",
            release="metallb",
            uninstalled="no load balancer has an address any more, the gateway's included",
            upgraded="its pods restart; addresses answer again after some seconds",
        ),
    ),
    component=AddonComponent(
        name="load-balancer-addresses",
        resource_type="metallb:MetalLb",
        # Speakers answer ARP from the host's network.
        pod_security="privileged",
        content=content,
        gives="addresses",
    ),
)
