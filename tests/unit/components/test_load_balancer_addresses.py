"""Addresses of load balancers from Cilium: which, who announces them, and what waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.addon import AddonSite
from components.addons.bgp import bgp_advertisement, bgp_node, bgp_peer
from components.addons.charts import Chart
from components.addons.installed import InstalledAddon
from components.addons.load_balancer_addresses import (
    BgpSessions,
    LoadBalancerAddresses,
    LoadBalancerAddressesArgs,
    address_pool,
    announcement,
)
from components.addons.metallb import METALLB
from components.gateway.gateway import envoy_proxy, proxy_labels
from components.specs.addresses import AddressesSpec
from components.specs.bgp import BgpPeerSpec, BgpSpec
from components.specs.gateway import GatewaySpec
from floor.address_ranges import read_range
from floor.taints import GPU_TAINT
from lab.plugins.kubernetes.awaiting.expressions import parse
from stacks.plan.announcing import bgp_sessions
from stacks.plan.charts import cilium_manifest
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program.addons import charts_of, check_values, releases_of
from talos.cni import cilium_values
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_bgp import site as bgp_site
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01")

OBJECTS = ("pool", "advertisement")
BLOCKS = [block for text in ("10.5.0.100-10.5.0.109", "10.6.0.0/30") if (block := read_range(text))]


SESSIONS = BgpSessions(
    bgp=BgpSpec(
        local_asn=64512,
        peers={
            "left": BgpPeerSpec(
                address="10.5.0.1", asn=64700, port=1790, hold_time_s=10, password_secret="left", hops=2
            ),
            "right": BgpPeerSpec(address="10.5.0.2", asn=64512, graceful_restart_s=0),
        },
    ),
    nodes={"infra-1": ["left", "right"], "infra-2": ["left"]},
)


def requests(by_bgp: BgpSessions | None = None) -> dict[str, Any]:
    recorder = Recorder()

    async def run() -> None:
        LoadBalancerAddresses("addresses", LoadBalancerAddressesArgs(ranges=BLOCKS, by_bgp=by_bgp))
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
    assert "bgpControlPlane" not in cilium_values()
    assert cilium_values(bgp=True)["bgpControlPlane"]["enabled"]


def test_cilium_reads_passwords_of_routers_and_no_other_secret_for_them() -> None:
    own = cilium_values(bgp=True)["bgpControlPlane"]["secretsNamespace"]
    assert own == {"create": True, "name": "cilium-bgp-secrets"}


def test_a_router_is_spoken_to_as_the_site_states() -> None:
    peers = SESSIONS.bgp.peers
    left, right = (bgp_peer(name, peers[name], BLOCKS)["spec"] for name in ("left", "right"))
    assert left["transport"] == {"peerPort": 1790}
    assert left["timers"] == {"holdTimeSeconds": 10, "keepAliveTimeSeconds": 3}
    assert left["authSecretRef"] == "left"
    assert (left["ebgpMultihop"], right["ebgpMultihop"]) == (2, 1)
    assert left["gracefulRestart"] == {"enabled": True, "restartTimeSeconds": 120}
    assert right["gracefulRestart"] == {"enabled": False}
    assert "authSecretRef" not in right


def test_each_address_of_a_service_is_a_route_and_no_other_route_is() -> None:
    (route,) = bgp_advertisement()["spec"]["advertisements"]
    assert (route["advertisementType"], route["service"]) == ("Service", {"addresses": ["LoadBalancerIP"]})
    labels = bgp_advertisement()["metadata"]["labels"]
    for text, family in (("10.7.0.0/28", "ipv4"), ("fd00::/120", "ipv6")):
        block = read_range(text)
        assert block
        (sent,) = bgp_peer("left", SESSIONS.bgp.peers["left"], [block])["spec"]["families"]
        assert (sent["afi"], sent["advertisements"]) == (family, {"matchLabels": labels})


def test_a_machine_has_its_own_sessions_and_no_other_machine_has_them() -> None:
    body = bgp_node("infra-2", ["left"], SESSIONS.bgp)
    assert body["spec"]["nodeSelector"] == {"matchLabels": {"kubernetes.io/hostname": "infra-2"}}
    (instance,) = body["spec"]["bgpInstances"]
    assert instance["localASN"] == 64512
    (peer,) = instance["peers"]
    assert (peer["peerAddress"], peer["peerASN"]) == ("10.5.0.1", 64700)
    named = bgp_peer("left", SESSIONS.bgp.peers["left"], BLOCKS)["metadata"]["name"]
    assert peer["peerConfigRef"] == {"name": named}


def test_sessions_come_after_their_routers_and_the_pool_after_both() -> None:
    made = requests(SESSIONS)
    after = {name: {urn.rpartition("::")[2] for urn in request.dependencies} for name, request in made.items()}
    assert after["addresses-sessions-infra-2"] == {"addresses-peer-left", "addresses-peer-right"}
    assert {"addresses-sessions-infra-1", "addresses-sessions-infra-2"} <= after["addresses-pool"]
    assert "addresses-announcement" not in made


def test_up_waits_for_the_secret_of_a_password_and_for_a_machine_that_is_selected() -> None:
    made = requests(SESSIONS)
    assert made["addresses-peer-left"].customTimeouts.create == "900s"
    for name, kinds in (
        ("peer-left", ["MissingAuthSecret"]),
        ("sessions-infra-1", ["NoMatchingNode", "MissingPeerConfigs", "ConflictingClusterConfig"]),
    ):
        waited = deserialize_properties(made[f"addresses-{name}"].object)["metadata"]["annotations"]
        checks = parse(waited["pulumi.com/waitFor"])
        assert len(checks) == len(kinds)
        for kind, holds in zip(kinds, checks, strict=True):
            met = {"status": {"conditions": [{"type": f"cilium.io/{kind}", "status": "True"}]}}
            assert not holds(met).ready
            assert holds({"status": {"conditions": [{"type": f"cilium.io/{kind}", "status": "False"}]}}).ready


def test_a_site_by_bgp_declares_its_machines_sessions() -> None:
    assert sorted(bgp_sessions(bgp_site().site)) == ["infra-1", "infra-2"]
    assert cilium_manifest(bgp_site().site) == Path(".bundle/cilium/cilium-bgp.yaml")
    own = {"cluster.machines.cilium_manifest": "own.yaml"}
    assert cilium_manifest(bgp_site(own).site) == Path("own.yaml")
    assert cilium_manifest(plan_values(prod(), "site.yaml").site) == Path(".bundle/cilium/cilium.yaml")


def test_the_pool_is_ready_when_cilium_has_taken_it_without_a_conflict() -> None:
    pool = requests()["addresses-pool"]
    annotations = deserialize_properties(pool.object)["metadata"]["annotations"]
    assert annotations["pulumi.com/waitFor"] == "condition=cilium.io/PoolConflict=False"
    assert [urn.rpartition("::")[2] for urn in pool.dependencies] == ["addresses-announcement"]


@pytest.mark.parametrize("address", ["10.5.0.100", None])
def test_the_gateway_asks_for_the_address_that_the_site_gives_it(address: str | None) -> None:
    proxy = envoy_proxy("g", GatewaySpec(port=80, address=address), drain_s=1)
    service = proxy["spec"]["provider"]["kubernetes"]["envoyService"]
    assert service.get("loadBalancerIP") == address


def test_proxies_are_spread_over_the_machines() -> None:
    """Else a drained machine could take all of them at once, whose budget lets one go after the other."""
    proxy = envoy_proxy("g", GatewaySpec(port=80), drain_s=1)
    pod = proxy["spec"]["provider"]["kubernetes"]["envoyDeployment"]["pod"]
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert spread["labelSelector"]["matchLabels"] == proxy_labels("g")


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
    assert release.values["crds"] == {"validationFailurePolicy": "Ignore"}, "its webhook answers after its pod is ready"
    assert "metallb" not in releases_of(plan_values(prod(), "site.yaml"), charts_of(plan_values(prod(), "site.yaml")))


def test_pool_and_advertisement_leave_before_metallb() -> None:
    """Its definitions leave with its release, and an object of a kind that is gone cannot be deleted."""
    recorder = Recorder()

    async def run() -> None:
        section = AddressesSpec(announced_by="metallb_l2", pool=("10.5.0.100-10.5.0.109", "10.6.0.0/30"))
        chart = Chart(chart="metallb", version="1.0.0")
        InstalledAddon(METALLB, AddonSite(section=section, charts={"metallb": chart}, taints=[GPU_TAINT]))
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    own = "load-balancer-addresses-"
    made = {name.removeprefix(own): request for name, request in recorder.requests.items()}
    after = {name: [urn.rpartition(f"::{own}")[2] for urn in made[name].dependencies] for name in OBJECTS}
    assert after == {"pool": ["metallb"], "advertisement": ["pool"]}
    pool = deserialize_properties(made["pool"].object)["spec"]
    assert pool["addresses"] == ["10.5.0.100-10.5.0.109", "10.6.0.0-10.6.0.3"]
    webhook = deserialize_properties(made["network-policy-metallb-webhook"].object)["spec"]["ingress"]
    assert webhook == [{"ports": [{"protocol": "TCP", "port": 9443}]}], "the API server asks it about each pool"
