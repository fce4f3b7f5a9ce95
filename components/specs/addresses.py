"""What a site may set for the addresses of load balancers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.specs.bgp import BgpSpec
from floor.address_ranges import read_range
from floor.problems import WrongValueError, shown
from floor.spec import Spec


class AddressesSpec(Spec):
    """Addresses of Services of type LoadBalancer, of which the gateway is one."""

    announced_by: Literal["cilium_l2", "cilium_bgp", "metallb_l2", "external"] = "external"
    """`cilium_l2`: the program's Cilium assigns them, and a node answers ARP for each; `cilium_bgp`: it assigns them,
    and announces them to the routers of `bgp`; `metallb_l2`: this program installs MetalLB, which answers ARP on
    another pod network; `external`: the cluster assigns them."""
    pool: tuple[str, ...] = Field(default=())
    """Addresses that nothing else has and no DHCP server hands out, such as `10.5.0.100-10.5.0.109`, a subnet, or a
    single one."""
    pool_reserved: bool = False
    """States that no DHCP server hands out addresses of the pool, where machines get theirs by DHCP; preview then does
    not warn of that."""
    bgp: BgpSpec | None = None
    """Routers that learn the addresses; with `cilium_bgp`, and required there."""

    @model_validator(mode="after")
    def _pool_is_one(self) -> AddressesSpec:
        if (self.announced_by == "external") != (not self.pool):
            raise WrongValueError(
                f"announced_by is {self.announced_by} and pool is {'set' if self.pool else 'not'}",
                allowed="a pool with cilium_l2, cilium_bgp and metallb_l2, and none with external",
                fix="name the pool's addresses, or take announced_by and pool out",
            )
        if self.pool_reserved and not self.pool:
            raise WrongValueError(
                "pool_reserved is of a pool, and there is none",
                got="pool_reserved true",
                fix="take pool_reserved out",
            )
        for text in self.pool:
            if read_range(text) is None:
                raise WrongValueError(
                    f"{shown(text)} in pool is no range of addresses",
                    allowed="FIRST-LAST, a subnet whose address has no bits set behind its prefix, or one address",
                    fix="write it like 10.5.0.100-10.5.0.109",
                )
        return self

    @model_validator(mode="after")
    def _routers_are_read(self) -> AddressesSpec:
        if (self.announced_by == "cilium_bgp") != (self.bgp is not None):
            raise WrongValueError(
                f"announced_by is {self.announced_by} and bgp is {'not set' if self.bgp is None else 'set'}",
                allowed="the section bgp with cilium_bgp, and with nothing else",
                fix="write announced_by: cilium_bgp with local_asn and peers in bgp, or take the section bgp out",
            )
        return self
