"""Addresses of load balancers from Cilium: which, who announces them, and what waits for them."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.load_balancer_addresses import (
    LoadBalancerAddresses,
    LoadBalancerAddressesArgs,
    address_pool,
    announcement,
)
from components.gateway.gateway import envoy_proxy
from components.specs.gateway import GatewaySpec
from floor.address_ranges import read_range
from talos.cni import cilium_values
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime

pytestmark = pytest.mark.row("C.01")

BLOCKS = [block for text in ("10.5.0.100-10.5.0.109", "10.6.0.0/30") if (block := read_range(text))]


def requests() -> dict[str, Any]:
    recorder = Recorder()

    async def run() -> None:
        LoadBalancerAddresses("addresses", LoadBalancerAddressesArgs(ranges=BLOCKS, planes_too=False))
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    return recorder.requests


def test_every_address_of_the_pool_is_given_away() -> None:
    """By first and last: of a subnet, Cilium would keep both ends."""
    assert address_pool(BLOCKS)["spec"]["blocks"] == [
        {"start": "10.5.0.100", "stop": "10.5.0.109"},
        {"start": "10.6.0.0", "stop": "10.6.0.3"},
    ]


def test_control_planes_announce_only_where_nothing_else_can() -> None:
    assert announcement(planes_too=False)["spec"]["nodeSelector"]["matchExpressions"][0]["operator"] == "DoesNotExist"
    assert "nodeSelector" not in announcement(planes_too=True)["spec"]


def test_cilium_is_rendered_so_that_it_can_announce() -> None:
    assert cilium_values()["l2announcements"] == {"enabled": True}


def test_the_pool_is_ready_when_cilium_has_taken_it_without_a_conflict() -> None:
    pool = requests()["addresses-pool"]
    annotations = deserialize_properties(pool.object)["metadata"]["annotations"]
    assert annotations["pulumi.com/waitFor"] == "condition=cilium.io/PoolConflict=False"
    assert [urn.rpartition("::")[2] for urn in pool.dependencies] == ["addresses-announcement"]


@pytest.mark.parametrize("address", ["10.5.0.100", None])
def test_the_gateway_asks_for_the_address_that_the_site_gives_it(address: str | None) -> None:
    proxy = envoy_proxy("g", GatewaySpec(port=80, address=address), drain_s=1, pools=[])
    service = proxy["spec"]["provider"]["kubernetes"]["envoyService"]
    assert service.get("loadBalancerIP") == address
