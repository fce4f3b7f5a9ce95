"""Routers that no machine could speak to, and sessions that would announce nothing."""

from __future__ import annotations

from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.announcing import bgp_sessions
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import Wrong, changed

pytestmark = pytest.mark.row("C.01", "opening 13")

BGP = "addresses.bgp"
LEFT = f"{BGP}.peers.left"
SECTION = {
    "announced_by": "cilium_bgp",
    "pool": ["10.7.0.0/28"],
    "bgp": {
        "local_asn": 64512,
        "peers": {"left": {"address": "10.5.0.1", "asn": 64700}, "right": {"address": "10.5.0.250", "asn": 64701}},
    },
}


def site(change: dict[str, Any] | None = None) -> SitePlan:
    """The annotated site by BGP, with a change."""
    base = {"addresses": SECTION, "gateway.address": "10.7.0.5", "cluster.machines.cilium_manifest": None}
    return plan_values(changed(changed(prod_with_links(), base), change or {}), "site.yaml")


WRONG = {
    "a pod's address": Wrong(
        {f"{LEFT}.address": "10.64.0.1"}, f"{LEFT}.address", "lies in networks.pods, which the cluster hands out itself"
    ),
    "a Service's address": Wrong({f"{LEFT}.address": "10.80.0.1"}, f"{LEFT}.address", "lies in networks.services"),
    "an address of the pool": Wrong({f"{LEFT}.address": "10.7.0.3"}, f"{LEFT}.address", "is in addresses.pool"),
    "a machine": Wrong({f"{LEFT}.address": "10.5.0.16"}, f"{LEFT}.address", "is an address of infra-1"),
    "a link": Wrong({f"{LEFT}.address": "10.30.0.21"}, f"{LEFT}.address", "is an address of hgx-1"),
    "the VIP": Wrong({f"{LEFT}.address": "10.5.0.10"}, f"{LEFT}.address", "is the VIP"),
    "the broadcast address": Wrong(
        {f"{LEFT}.address": "10.5.0.255"}, f"{LEFT}.address", "is the broadcast address of 10.5.0.0/24"
    ),
    "multicast": Wrong({f"{LEFT}.address": "224.0.0.5"}, f"{LEFT}.address", "is no address that a router answers on"),
    "a link-local address": Wrong(
        {f"{LEFT}.address": "fe80::1"}, f"{LEFT}.address", "is no address that a router answers on"
    ),
    "no address": Wrong({f"{LEFT}.address": "tor-1"}, f"{LEFT}.address", "not an address"),
    "an address with a link": Wrong({f"{LEFT}.address": "2001:db8::1%eth0"}, f"{LEFT}.address", "not an address"),
    "another family": Wrong(
        {f"{LEFT}.address": "2001:db8::1", f"{LEFT}.hops": 3},
        f"{LEFT}.address",
        "is IPv6, and infra-1 has no such address, so no session comes up",
        {f"{LEFT}.address": "10.8.0.1"},
    ),
    "another family within a system": Wrong(
        {f"{LEFT}.address": "2001:db8::1", f"{LEFT}.asn": 64512}, f"{LEFT}.address", "is IPv6, and infra-1 has no such"
    ),
    "another router": Wrong(
        {f"{BGP}.peers.right.address": "10.5.0.1"},
        f"{BGP}.peers.right.address",
        "is the address of left too, and infra-1 can have one session with it",
    ),
    "a router behind another": Wrong(
        {f"{LEFT}.address": "10.8.0.1"},
        f"{LEFT}.address",
        "lies in no subnet of infra-1, and hops is 1",
        {f"{LEFT}.hops": 2},
    ),
    "hops within a system": Wrong(
        {f"{LEFT}.asn": 64512, f"{LEFT}.hops": 2}, f"{LEFT}.hops", "is not read for a router", {f"{LEFT}.hops": 1}
    ),
    "a reserved number": Wrong({f"{BGP}.local_asn": 23456}, f"{BGP}.local_asn", "is reserved (AS_TRANS, RFC 6793)"),
    "a peer's reserved number": Wrong({f"{LEFT}.asn": 65535}, f"{LEFT}.asn", "is reserved (RFC 7300)"),
    "a number of no system": Wrong({f"{LEFT}.asn": 4294967295}, f"{LEFT}.asn", "4294967294"),
    "no number": Wrong({f"{BGP}.local_asn": 0}, f"{BGP}.local_asn", "1"),
    "an unknown machine": Wrong({f"{LEFT}.nodes": ["infra-3"]}, f"{LEFT}.nodes.0", "is no machine of cluster.machines"),
    "a machine twice": Wrong({f"{LEFT}.nodes": ["infra-1", "infra-1"]}, f"{LEFT}.nodes.1", "is there twice"),
    "a short hold time": Wrong({f"{LEFT}.hold_time_s": 2}, f"{LEFT}.hold_time_s", "3"),
    "a Secret's name": Wrong({f"{LEFT}.password_secret": "A b"}, f"{LEFT}.password_secret", "not a name of lower-case"),
    "no routers": Wrong({f"{BGP}.peers": {}}, f"{BGP}.peers", "1"),
    "proxies that no router hears of": Wrong(
        {
            f"{LEFT}.nodes": ["hgx-1"],
            f"{BGP}.peers.right.nodes": ["infra-1"],
            "gateway.external_traffic_policy": "Local",
        },
        "gateway.external_traffic_policy",
        "is Local, and proxies on infra-2 would be announced to no router",
        {"gateway.external_traffic_policy": "Cluster"},
    ),
    "another pod network": Wrong(
        {"cluster.machines.cni": "external"},
        "addresses.announced_by",
        "is cilium_bgp, and the pod network is not this program's Cilium",
        {"addresses": {"announced_by": "metallb_l2", "pool": ["10.5.0.100"]}, "gateway.address": "10.5.0.100"},
    ),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_router_that_cannot_be_one_is_refused_at_its_key(case: str) -> None:
    wrong = WRONG[case]
    with pytest.raises(SiteError) as caught:
        site(wrong.change)
    assert {problem.key for problem in caught.value.problems} == {wrong.key}, str(caught.value)
    assert wrong.what in str(caught.value)
    assert all(problem.fix for problem in caught.value.problems)
    if wrong.fixed is not None:
        assert site(wrong.change | wrong.fixed)


def test_a_password_in_the_place_of_its_secret_s_name_is_not_printed() -> None:
    with pytest.raises(SiteError) as caught:
        site({f"{LEFT}.password_secret": "Pass!word"})
    assert "Pass!word" not in str(caught.value)


def test_a_password_under_a_key_of_its_own_is_not_to_be_renamed_to_the_name_of_its_secret() -> None:
    with pytest.raises(SiteError) as caught:
        site({f"{LEFT}.password": "hunter2"})
    (problem,) = caught.value.problems
    assert problem.near == "password_secret"
    assert problem.fix.startswith("write password_secret with the name of what holds the secret; if the secret itself")
    assert "hunter2" not in str(caught.value)


def test_fixes_for_addresses_fit_who_announces_them() -> None:
    """By BGP an address of the nodes' network works for few clients, and by ARP another one for none."""
    taken = {"addresses.pool": ["10.5.0.21"], "gateway.address": None}
    with pytest.raises(SiteError, match=r"fix: choose addresses outside of networks.nodes that nothing has"):
        site(taken)
    with pytest.raises(SiteError, match="write metallb_l2 with a pool in the nodes' network and without bgp, take"):
        site({"cluster.machines.cni": "external"})


def test_all_that_is_wrong_with_routers_comes_at_once() -> None:
    with pytest.raises(SiteError) as caught:
        site({f"{LEFT}.address": "10.64.0.1", f"{BGP}.peers.right.asn": 65535, f"{BGP}.peers.right.nodes": ["gone"]})
    keys = {f"{LEFT}.address", f"{BGP}.peers.right.asn", f"{BGP}.peers.right.nodes.0"}
    assert {problem.key for problem in caught.value.problems} == keys


def test_machines_of_two_racks_may_have_routers_of_one_address() -> None:
    """As where each rack has the same gateway."""
    same = {f"{BGP}.peers.right.address": "10.5.0.1", f"{BGP}.peers.right.nodes": ["infra-2"]}
    assert site({f"{LEFT}.nodes": ["infra-1"], **same})


def test_no_subnet_is_held_against_a_machine_whose_addresses_are_not_known() -> None:
    near = {f"{LEFT}.address": "10.8.0.1", f"{LEFT}.nodes": ["infra-1"], "gateway.external_traffic_policy": "Cluster"}
    with pytest.raises(SiteError, match="lies in no subnet of infra-1"):
        site(near)
    assert site({**near, "cluster.machines.nodes.infra-1.links": {"eno9": {"dhcp": True}}})


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ({**SECTION, "bgp": None}, "announced_by is cilium_bgp and bgp is not set"),
        ({**SECTION, "announced_by": "cilium_l2"}, "announced_by is cilium_l2 and bgp is set"),
        ({**SECTION, "pool": []}, "announced_by is cilium_bgp and pool is not"),
    ],
)
def test_routers_come_with_bgp_alone(section: dict[str, Any], what: str) -> None:
    with pytest.raises(SiteError, match="addresses") as caught:
        site({"addresses": section})
    assert what in str(caught.value)


def test_machines_of_the_proxies_announce_unless_a_peer_names_others() -> None:
    assert bgp_sessions(site().site) == {"infra-1": ["left", "right"], "infra-2": ["left", "right"]}
    own = site({f"{LEFT}.nodes": ["hgx-1", "cp-2"]}).site
    assert bgp_sessions(own) == {"cp-2": ["left"], "hgx-1": ["left"], "infra-1": ["right"], "infra-2": ["right"]}
    mixed = site({"cluster.machines.nodes.cp-1.schedulable": True}).site
    assert sorted(bgp_sessions(mixed)) == ["cp-1", "infra-1", "infra-2"]
    tainted = site({"cluster.machines.nodes.infra-2.taints": {"own": "x:NoSchedule"}}).site
    assert sorted(bgp_sessions(tainted)) == ["infra-1"]
    assert bgp_sessions(plan_values(prod_with_links(), "site.yaml").site) == {}


def test_a_machine_that_is_dead_announces_nothing() -> None:
    dead = "cluster.machines.nodes.infra-2.dead"
    assert sorted(bgp_sessions(site({dead: True}).site)) == ["infra-1"]
    with pytest.raises(SiteError, match=r"peers\.left\.nodes: has no machine that announces to it: each one is dead"):
        site({dead: True, f"{LEFT}.nodes": ["infra-2"]})


def test_clients_keep_their_addresses_where_each_proxy_is_announced() -> None:
    """Unlike by ARP: a machine without a proxy announces nothing."""
    assert site({"gateway.external_traffic_policy": "Local"})


def test_a_pool_among_the_nodes_is_a_warning() -> None:
    warned = site({"addresses.pool": ["10.5.0.100-10.5.0.109"], "gateway.address": None}).warnings
    texts = [f"{problem.key}: {problem.what}" for problem in warned]
    assert any(text.startswith("addresses.pool.0: lies in networks.nodes (10.5.0.0/24)") for text in texts)
    assert not any("addresses.pool" in problem.key for problem in site().warnings)


def test_a_pool_among_the_hosts_of_another_link_is_a_warning() -> None:
    warned = site({"addresses.pool": ["10.30.0.100-10.30.0.109"], "gateway.address": None}).warnings
    texts = [f"{problem.key}: {problem.what}" for problem in warned]
    begins = "addresses.pool.0: lies in the subnet of bond0.30 of hgx-1 (10.30.0.0/24), whose hosts ask for it by ARP"
    assert any(text.startswith(begins) for text in texts)
