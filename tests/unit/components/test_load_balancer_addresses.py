"""Addresses of load balancers from Cilium: which, who announces them, and what waits for them."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.charts import Chart
from components.addons.load_balancer_addresses import (
    LoadBalancerAddresses,
    LoadBalancerAddressesArgs,
    address_pool,
    announcement,
)
from components.addons.metallb import MetalLb, MetalLbArgs
from components.gateway.gateway import envoy_proxy
from components.specs.gateway import GatewaySpec
from floor.address_ranges import read_range
from floor.taints import GPU_TAINT
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program.addons import charts_of, check_values, releases_of
from talos.cni import cilium_values
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01")

OBJECTS = ("pool", "advertisement")
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


def metallb_site() -> SitePlan:
    external = {"cluster.machines.cni": "external", "addresses.announced_by": "metallb_l2"}
    return plan_values(changed(prod(), external), "site.yaml")


def test_metallb_comes_by_chart_where_the_pod_network_assigns_no_addresses() -> None:
    plan = metallb_site()
    charts = charts_of(plan)
    check_values(plan, charts)
    release = releases_of(plan, charts)["metallb"]
    assert release.chart.chart == "oci://registry.site.example/charts/metallb"
    speaker = release.values["speaker"]
    assert speaker["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "metallb" not in releases_of(plan_values(prod(), "site.yaml"), charts_of(plan_values(prod(), "site.yaml")))


def test_pool_and_advertisement_leave_before_metallb() -> None:
    """Its definitions leave with its release, and an object of a kind that is gone cannot be deleted."""
    recorder = Recorder()

    async def run() -> None:
        args = MetalLbArgs(chart=Chart(chart="metallb", version="1.0.0"), ranges=BLOCKS, taints=[GPU_TAINT])
        MetalLb("addresses", args)
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    made = recorder.requests
    after = {name: [urn.rpartition("::")[2] for urn in made[f"addresses-{name}"].dependencies] for name in OBJECTS}
    assert after == {"pool": ["addresses-metallb"], "advertisement": ["addresses-pool"]}
    pool = deserialize_properties(made["addresses-pool"].object)["spec"]
    assert pool["addresses"] == ["10.5.0.100-10.5.0.109", "10.6.0.0-10.6.0.3"]
    webhook = deserialize_properties(made["addresses-network-policy-metallb-webhook"].object)["spec"]["ingress"]
    assert webhook == [{"ports": [{"protocol": "TCP", "port": 9443}]}], "the API server asks it about each pool"
