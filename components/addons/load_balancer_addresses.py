"""Addresses for load balancers: Cilium assigns them out of a pool, and announces them by ARP or by BGP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.bgp import bgp_advertisement, bgp_node, bgp_peer
from components.component import Component
from components.specs.bgp import BgpSpec
from floor.address_ranges import AddressRange

_POOL = "inference-platform"
_API = "cilium.io"
# Until someone has made the Secret of a password.
_PATIENCE_S = 900
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
class BgpSessions:
    """Who announces the addresses by BGP."""

    bgp: BgpSpec
    nodes: Mapping[str, Sequence[str]]
    """Names of the peers by the machine that announces to them."""


@dataclass(frozen=True, kw_only=True)
class LoadBalancerAddressesArgs:
    """The pool, and who announces it: by BGP, or by ARP on all nodes but control planes."""

    ranges: Sequence[AddressRange]
    planes_too: bool = False
    """By ARP on control planes as well."""
    by_bgp: BgpSessions | None = None
    needs: Sequence[pulumi.Resource] = ()
    """What changes Cilium, and what fills the Secrets of passwords."""


@dataclass(frozen=True, kw_only=True)
class LoadBalancerAddressesHandle:
    """Addresses that Services get once `ready` is there."""

    ready: list[pulumi.Resource]


class LoadBalancerAddresses(Component, token="load_balancer_addresses:LoadBalancerAddresses"):
    """Pool and announcement of the machine configs' own Cilium, whose kinds are served once a node is Ready."""

    def __init__(self, name: str, args: LoadBalancerAddressesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        announced: list[pulumi.Resource] = (
            self._sessions(args.by_bgp, args)
            if args.by_bgp
            else [self.child("announcement", announcement(planes_too=args.planes_too), depends_on=args.needs)]
        )
        pool = self.child("pool", address_pool(args.ranges), depends_on=announced)
        self.handle = LoadBalancerAddressesHandle(ready=[*announced, pool])
        self.finish()

    def _sessions(self, sessions: BgpSessions, args: LoadBalancerAddressesArgs) -> list[pulumi.Resource]:
        advertised = self.child("advertisement", bgp_advertisement(), depends_on=args.needs)
        peers = [
            self.child(
                f"peer-{name}",
                bgp_peer(name, peer, args.ranges),
                depends_on=[advertised, *args.needs],
                patience_s=_PATIENCE_S,
            )
            for name, peer in sorted(sessions.bgp.peers.items())
        ]
        return [
            advertised,
            *peers,
            *(
                self.child(f"sessions-{node}", bgp_node(node, names, sessions.bgp), depends_on=peers)
                for node, names in sorted(sessions.nodes.items())
            ),
        ]
