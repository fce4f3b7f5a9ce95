"""Addresses for load balancers: Cilium assigns them out of a pool, and one node answers ARP for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from floor.address_ranges import AddressRange

_POOL = "inference-platform"
_API = "cilium.io"
_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


def address_pool(ranges: Sequence[AddressRange]) -> dict[str, Any]:
    """The pool of every Service of type LoadBalancer; it is usable once it conflicts with no other."""
    return {
        "apiVersion": f"{_API}/v2",
        "kind": "CiliumLoadBalancerIPPool",
        "metadata": {"name": _POOL, "annotations": {"pulumi.com/waitFor": f"condition={_API}/PoolConflict=False"}},
        "spec": {"blocks": [{"start": str(block.first), "stop": str(block.last)} for block in ranges]},
    }


def announcement(*, planes_too: bool) -> dict[str, Any]:
    """Which nodes may answer for the addresses. planes_too: the site has control planes alone."""
    others = {"nodeSelector": {"matchExpressions": [{"key": _PLANE_LABEL, "operator": "DoesNotExist"}]}}
    return {
        "apiVersion": f"{_API}/v2alpha1",
        "kind": "CiliumL2AnnouncementPolicy",
        "metadata": {"name": _POOL},
        "spec": {"loadBalancerIPs": True, **({} if planes_too else others)},
    }


@dataclass(frozen=True, kw_only=True)
class LoadBalancerAddressesArgs:
    """The pool, and who announces it."""

    ranges: Sequence[AddressRange]
    planes_too: bool


@dataclass(frozen=True, kw_only=True)
class LoadBalancerAddressesHandle:
    """Addresses that Services get once `ready` is there."""

    ready: list[pulumi.Resource]


class LoadBalancerAddresses(Component):
    """Pool and announcement of the machine configs' own Cilium, whose kinds are served once a node is Ready."""

    def __init__(self, name: str, args: LoadBalancerAddressesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        announced = self.child("announcement", announcement(planes_too=args.planes_too))
        pool = self.child("pool", address_pool(args.ranges), depends_on=[announced])
        self.handle = LoadBalancerAddressesHandle(ready=[announced, pool])
        self.finish()
