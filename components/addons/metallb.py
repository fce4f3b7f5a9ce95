"""MetalLB: assigns addresses of load balancers on clusters whose pod network does not, and answers ARP for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.addon import Addon, AddonArgs, AddonHandle, AddonRelease
from components.addons.charts import Chart
from components.network_policies import allow_ingress
from floor import namespaces
from floor.address_ranges import AddressRange
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


@dataclass(frozen=True, kw_only=True)
class MetalLbArgs:
    """The chart, the pool, and the nodes that it is for."""

    chart: Chart
    ranges: Sequence[AddressRange]
    taints: Sequence[Taint]


def metallb_release(args: MetalLbArgs) -> AddonRelease:
    """The chart with its values."""
    return AddonRelease(name="metallb", chart=args.chart, values=metallb_values(args.taints))


class MetalLb(Addon, token="metallb:MetalLb"):
    """Ready when the pool has passed MetalLB's own check, which answers once its controller runs."""

    def __init__(self, name: str, args: MetalLbArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        webhook = allow_ingress("metallb-webhook", NAMESPACE, {}, [((), [_WEBHOOK_PORT])])
        addon = AddonArgs(
            namespace=NAMESPACE,
            # Speakers answer ARP from the host's network.
            pod_security="privileged",
            releases=[metallb_release(args)],
            network_policies=[webhook],
        )
        super().__init__(name, addon, opts)
        pool = self.child("pool", address_pool(args.ranges), depends_on=self.installed)
        announced = self.child("advertisement", advertisement(), depends_on=[pool])
        self.handle = AddonHandle(ready=[*self.installed, pool, announced])
        self.finish(namespace=NAMESPACE)
