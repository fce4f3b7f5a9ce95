"""Addresses of load balancers that something else has, or that nothing could announce."""

from __future__ import annotations

from typing import Any

import pytest

from floor.address_ranges import read_range
from floor.problems import Problem, SiteError
from stacks.plan.site_plan import plan_values
from stacks.site.checks.pools import warnings
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("C.01", "opening 13")

POOL = "addresses.pool"
FREE = {POOL: ["10.5.0.200-10.5.0.209"]}


def pool(*entries: str) -> dict[str, Any]:
    return {POOL: list(entries), "gateway.address": None}


TAKEN = {
    "a node": (("10.5.0.20-10.5.0.22",), f"{POOL}.0", "has addresses that others have: hgx-1 has 10.5.0.21, hgx-2 has"),
    "the VIP": (("10.5.0.8/30",), f"{POOL}.0", "the VIP has 10.5.0.10"),
    "a link": (("10.5.0.200", "10.30.0.0/24"), f"{POOL}.1", "bond0.30 of hgx-1 has 10.30.0.21"),
    "the router": (("10.5.0.1-10.5.0.1",), f"{POOL}.0", "a gateway of routes has 10.5.0.1"),
    "a resolver": (("10.5.0.3",), f"{POOL}.0", "a resolver has 10.5.0.3"),
    "a time server": (("10.5.0.4",), f"{POOL}.0", "a time server has 10.5.0.4"),
    "another family": (("10.5.0.200", "fd00:7::/120"), f"{POOL}.1", "is IPv6, and Services have IPv4 addresses alone"),
    "multicast": (("224.0.1.0/28",), f"{POOL}.0", "holds addresses that no host of a network has"),
    "loopback": (("127.0.0.16/28",), f"{POOL}.0", "holds addresses that no host of a network has"),
    "pods": (("10.64.9.0/28",), f"{POOL}.0", "lies in networks.pods"),
    "Services": (("10.80.0.0-10.80.0.9",), f"{POOL}.0", "lies in networks.services"),
    "another entry": (("10.5.0.200-10.5.0.209", "10.5.0.208/31"), f"{POOL}.1", "overlaps 10.5.0.200-10.5.0.209"),
    "the network address": (("10.5.0.0",), f"{POOL}.0", "holds the network address of 10.5.0.0/24"),
    "the broadcast address": (("10.5.0.250-10.5.0.255",), f"{POOL}.0", "holds the broadcast address of 10.5.0.0/24"),
}


@pytest.mark.parametrize("case", sorted(TAKEN))
def test_a_pool_takes_no_address_that_something_else_has(case: str) -> None:
    entries, key, what = TAKEN[case]
    refused_and_fixed(Wrong(pool(*entries), key, what, fixed=FREE))


@pytest.mark.parametrize(
    ("change", "key", "what", "fixed"),
    [
        (
            {"gateway.external_traffic_policy": "Local"},
            "gateway.external_traffic_policy",
            "is Local, and Cilium also answers ARP on nodes without an Envoy",
            {"gateway.external_traffic_policy": "Cluster"},
        ),
        (
            {"gateway.address": "10.5.0.99"},
            "gateway.address",
            "is not in addresses.pool, so nothing assigns it",
            {"gateway.address": "10.5.0.109"},
        ),
        (
            {"addresses.announced_by": "metallb_l2"},
            "addresses.announced_by",
            "is metallb_l2, and this program's Cilium would assign the same addresses",
            {"addresses.announced_by": "cilium_l2"},
        ),
        (
            {"cluster.machines.cni": "external"},
            "addresses.announced_by",
            "is cilium_l2, and the pod network is not this program's Cilium",
            {"cluster.machines.cni": "cilium"},
        ),
    ],
)
def test_what_cannot_be_announced_is_refused(
    change: dict[str, Any], key: str, what: str, fixed: dict[str, Any]
) -> None:
    refused_and_fixed(Wrong(change, key, what, fixed=fixed))


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ({"announced_by": "cilium_l2"}, "announced_by is cilium_l2 and pool is not"),
        ({"pool": ["10.5.0.200"]}, "announced_by is external and pool is set"),
        ({"announced_by": "cilium_l2", "pool": ["10.5.0.209-10.5.0.200"]}, "is no range of addresses"),
        ({"announced_by": "cilium_l2", "pool": ["10.5.0.200/24"]}, "is no range of addresses"),
        ({"announced_by": "cilium_l2", "pool": ["10.5.0.200 - 10.5.0.209"]}, "is no range of addresses"),
        ({"announced_by": "cilium_l2", "pool": ["10.5.0.200-fd00::1"]}, "is no range of addresses"),
    ],
)
def test_a_pool_has_the_form_of_one(section: dict[str, Any], what: str) -> None:
    with pytest.raises(SiteError, match="addresses") as caught:
        plan_values(changed(prod_with_links(), {"addresses": section}), "site.yaml")
    assert what in str(caught.value)


def test_the_pool_of_metallb_is_compared_too() -> None:
    external = {"cluster.machines.cni": "external", "addresses.announced_by": "metallb_l2"}
    assert plan_values(changed(prod_with_links(), external | {"gateway.external_traffic_policy": "Local"}), "site.yaml")
    with pytest.raises(SiteError, match=r"addresses\.pool\.0: .*the VIP has 10\.5\.0\.10"):
        plan_values(changed(prod_with_links(), external | pool("10.5.0.10")), "site.yaml")


def warned(change: dict[str, Any]) -> list[str]:
    plan = plan_values(changed(prod_with_links(), change), "site.yaml")
    return [problem.text("site.yaml") for problem in plan.warnings if problem.key.startswith(POOL)]


def without_links() -> dict[str, Any]:
    """The site, whose machines have links that are not named, as where Talos asks for addresses by itself."""
    values = prod_with_links()
    machines = values["cluster"]["machines"]
    for level in (machines, *machines["roles"].values(), *machines["nodes"].values()):
        for key in ("links", "bonds", "vlans", "ethernet", "link_aliases"):
            level.pop(key, None)
    return values


@pytest.mark.parametrize("system", ["cilium_l2", "metallb_l2"])
def test_a_pool_where_machines_get_addresses_by_dhcp_is_a_warning(system: str) -> None:
    change: dict[str, Any] = {"addresses.announced_by": system}
    change |= {"cluster.machines.cni": "external"} if system == "metallb_l2" else {}
    plan = plan_values(changed(without_links(), change), "site.yaml")
    (warning,) = [problem for problem in plan.warnings if problem.key.startswith(POOL)]
    assert warning.key == f"{POOL}.0"
    assert (
        "lies in 10.5.0.0/24, where cp-1 and 8 other machines get addresses by DHCP: another host may be"
        in warning.what
    )
    assert "keep them out of what that server hands out, and state that by addresses.pool_reserved" in warning.fix
    assert warned(change) == []


def test_a_site_that_reserved_its_pool_at_the_server_is_not_warned() -> None:
    plan = plan_values(changed(without_links(), {"addresses.pool_reserved": True}), "site.yaml")
    assert [problem.key for problem in plan.warnings if problem.key.startswith(POOL)] == []
    nothing = {"announced_by": "external", "pool_reserved": True}
    with pytest.raises(SiteError, match="pool_reserved is of a pool, and there is none"):
        plan_values(changed(prod_with_links(), {"addresses": nothing}), "site.yaml")


def test_a_reserved_pool_among_hosts_that_ask_by_arp_is_a_warning_of_bgp_all_the_same() -> None:
    machines = {
        "networks": {"nodes": ["10.7.0.0/24"]},
        "nodes": {"cp-1": {"role": "controlplane", "address": "10.7.0.11"}},
    }
    addresses = {"announced_by": "cilium_bgp", "pool": ["10.7.0.9"], "pool_reserved": True}
    (warning,) = warnings({"addresses": addresses, "cluster": {"machines": machines}})
    assert "by BGP none answers them" in warning.what


def of_links(links: dict[str, Any], pool: str = "10.7.0.9") -> list[Problem]:
    node = {"role": "controlplane", "address": "10.7.0.11", "links": links}
    machines = {"networks": {"nodes": ["10.7.0.0/24"]}, "nodes": {"cp-1": node}}
    addresses = {"announced_by": "cilium_l2", "pool": [pool]}
    return [*warnings({"addresses": addresses, "cluster": {"machines": machines}})]


def test_a_pool_where_a_link_gets_the_machines_own_address_is_a_warning() -> None:
    (warning,) = of_links({"eno1": {"dhcp": True}})
    assert "lies in 10.7.0.0/24, where cp-1 gets addresses by DHCP" in warning.what
    assert len(of_links({"eno1": {"dhcp": True}, "eno2": {"addresses": ["10.8.0.11/24"]}})) == 1


@pytest.mark.parametrize(
    "links",
    [
        {"eno1": {"dhcp": True, "node_address": True}},
        {"eno1": {"dhcp": True, "addresses": ["10.7.0.11/24"]}},
        {"eno1": {"dhcp": True}, "eno2": {"node_address": True}},
        {"eno1": {"dhcp": True, "addresses": ["10.8.0.11/24"]}, "eno2": {"node_address": True}},
    ],
    ids=["node address", "own address", "another link's", "storage"],
)
def test_what_a_server_gives_beside_static_addresses_may_be_of_any_subnet(links: dict[str, Any]) -> None:
    assert of_links(links) == []
    assert of_links(links, "10.8.0.100") == []


@pytest.mark.parametrize(
    ("nodes", "own", "address", "count"),
    [("10.7.0.0/24", "10.7.0.11", "10.7.0.9", 1), ("fd00:7::/64", "fd00:7::11", "fd00:7::9", 0)],
)
def test_talos_asks_for_ipv4_addresses_alone(nodes: str, own: str, address: str, count: int) -> None:
    machines = {"networks": {"nodes": [nodes]}, "nodes": {"cp-1": {"role": "controlplane", "address": own}}}
    addresses = {"announced_by": "cilium_l2", "pool": [address]}
    assert len([*warnings({"addresses": addresses, "cluster": {"machines": machines}})]) == count


def test_a_dead_machine_asks_no_server() -> None:
    for dead, count in ((False, 1), (True, 0)):
        node = {"role": "worker", "address": "10.7.0.11", "dead": dead}
        machines = {"networks": {"nodes": ["10.7.0.0/24"]}, "nodes": {"w-1": node}}
        addresses = {"announced_by": "cilium_l2", "pool": ["10.7.0.9"]}
        assert len([*warnings({"addresses": addresses, "cluster": {"machines": machines}})]) == count


def test_an_existing_cluster_announces_its_own() -> None:
    values = changed(prod_with_links(), {"storage.system": "external", "storage.longhorn": None})
    values["cluster"] = {"kubeconfig": "kubeconfig"}
    with pytest.raises(SiteError, match=r"addresses\.announced_by: is cilium_l2, and the pod network"):
        plan_values(values, "site.yaml")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("10.5.0.96/28", "10.5.0.96", "10.5.0.111"),
        ("10.5.0.100-10.5.0.109", "10.5.0.100", "10.5.0.109"),
        ("10.5.0.7", "10.5.0.7", "10.5.0.7"),
        ("fd00::/126", "fd00::", "fd00::3"),
    ],
)
def test_a_range_is_read_as_people_write_it(text: str, first: str, last: str) -> None:
    block = read_range(text)
    assert block is not None
    assert (str(block.first), str(block.last)) == (first, last)
