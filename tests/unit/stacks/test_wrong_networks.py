"""Address plans, endpoints and links that read well and would fail on the rack: each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import M, N, Wrong, changed, refused_and_fixed

WRONG: dict[str, Wrong] = {
    # Address plan
    "VIP outside of its network": Wrong(
        {f"{N}.vip": "10.6.0.10", f"{M}.endpoint": "https://10.6.0.10:6443"}, f"{N}.vip", "outside of networks.nodes"
    ),
    "VIP is the gateway": Wrong(
        {f"{N}.vip": "10.5.0.1", f"{M}.endpoint": "https://10.5.0.1:6443"},
        f"{N}.vip",
        "the address of the gateway of cp-1",
    ),
    "VIP is a resolver": Wrong(
        {f"{N}.vip": "10.5.0.2", f"{M}.endpoint": "https://10.5.0.2:6443"}, f"{N}.vip", "a DNS server (resolvers)"
    ),
    "VIP is the log server": Wrong(
        {f"{N}.vip": "10.5.0.6", f"{M}.endpoint": "https://10.5.0.6:6443"}, f"{N}.vip", "the log server (kernel_log)"
    ),
    "VIP is the broadcast address": Wrong(
        {f"{N}.vip": "10.5.0.255", f"{M}.endpoint": "https://10.5.0.255:6443"}, f"{N}.vip", "the broadcast address"
    ),
    "VIP is the network's address": Wrong(
        {f"{N}.vip": "10.5.0.0", f"{M}.endpoint": "https://10.5.0.0:6443"}, f"{N}.vip", "the network address of"
    ),
    "VIP is a node": Wrong(
        {f"{N}.vip": "10.5.0.16", f"{M}.endpoint": "https://10.5.0.16:6443"}, f"{N}.vip", "is the address of infra-1"
    ),
    "VIP on an unknown link": Wrong(
        {f"{N}.vip_link": "bond1"}, f"{N}.vip_link", "is no link", {f"{N}.vip_link": "bond0"}
    ),
    "VIP's link without a VIP": Wrong({f"{N}.vip": None}, f"{N}.vip", "missing, and vip_link names"),
    "node at the broadcast address": Wrong(
        {f"{M}.nodes.hgx-4.address": "10.5.0.255"}, f"{M}.nodes.hgx-4.address", "the broadcast address of 10.5.0.0/24"
    ),
    "node at the address of a DNS server": Wrong(
        {f"{M}.nodes.hgx-4.address": "10.5.0.2"}, f"{M}.nodes.hgx-4.address", "the address of a DNS server (resolvers)"
    ),
    "node at the address of a time server": Wrong(
        {f"{M}.nodes.hgx-4.address": "10.5.0.4"}, f"{M}.nodes.hgx-4.address", "a time server (time_servers)"
    ),
    "node at the address of the log server": Wrong(
        {f"{M}.nodes.hgx-4.address": "10.5.0.6"}, f"{M}.nodes.hgx-4.address", "the log server (kernel_log)"
    ),
    "link at the address of the router": Wrong(
        {f"{M}.nodes.cp-1.bonds": {"bond0": {"addresses": ["10.5.0.1/24"]}}},
        f"{M}.nodes.cp-1.bonds.bond0.addresses.0",
        "is the gateway of bond0",
        {f"{M}.nodes.cp-1.bonds.bond0.addresses.0": "10.5.0.99/24"},
    ),
    "link at the address of a DNS server": Wrong(
        {f"{M}.nodes.cp-1.bonds": {"bond0": {"addresses": ["10.5.0.2/24"]}}},
        f"{M}.nodes.cp-1.bonds.bond0.addresses.0",
        "is the address of a DNS server",
    ),
    "link with a loopback address": Wrong(
        {f"{M}.nodes.cp-1.bonds": {"bond0": {"addresses": ["127.0.0.1/8"]}}},
        f"{M}.nodes.cp-1.bonds.bond0.addresses.0",
        "no address of one machine",
    ),
    "link with the broadcast address": Wrong(
        {f"{M}.nodes.hgx-1.vlans.bond0.30.addresses": ["10.30.0.255/24"]},
        f"{M}.nodes.hgx-1.vlans.bond0.30.addresses.0",
        "the broadcast address of 10.30.0.0/24",
    ),
    "link of a network that holds the pods'": Wrong(
        {f"{M}.nodes.hgx-1.vlans.bond0.30.addresses": ["10.30.0.21/8"]},
        f"{M}.nodes.hgx-1.vlans.bond0.30.addresses.0",
        "10.0.0.0/8 overlaps networks.pods (10.64.0.0/16): those would be looked for on bond0.30",
        {f"{M}.nodes.hgx-1.vlans.bond0.30.addresses.0": "10.30.0.21/24"},
    ),
    "link among the Services": Wrong(
        {f"{M}.nodes.hgx-1.vlans.bond0.30.addresses": ["10.80.3.21/24"]},
        f"{M}.nodes.hgx-1.vlans.bond0.30.addresses.0",
        "10.80.3.0/24 overlaps networks.services (10.80.0.0/16)",
        {f"{M}.nodes.hgx-1.vlans.bond0.30.addresses.0": "10.30.0.21/24"},
    ),
    "pods on the links of many machines": Wrong(
        {f"{N}.pods": "10.9.0.0/16"},
        f"{N}.pods",
        "holds addresses of links: rail1 of hgx-1 and 3 more",
        {f"{N}.pods": "10.64.0.0/16"},
    ),
    "a link-local DNS server without a link": Wrong(
        {f"{M}.resolvers": ["fe80::1"]},
        f"{M}.resolvers.0",
        "write fe80::1%bond0",
        {f"{M}.resolvers": ["fe80::1%bond0"]},
    ),
    # Routes
    "route from an address that no link has": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1", "source": "10.5.0.99"}]},
        f"{M}.bonds.bond0.routes.0.source",
        "no address of cp-1, so the kernel refuses the route",
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}]},
    ),
    "two default routes of one metric": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}, {"gateway": "10.5.0.254"}]},
        f"{M}.bonds.bond0.routes.1",
        "write metric: 2048",
        {f"{M}.bonds.bond0.routes.1.metric": 2048},
    ),
    "a second default route on another link": Wrong(
        {f"{M}.nodes.hgx-1.vlans.bond0.30.routes": [{"gateway": "10.30.0.1", "metric": 1024}]},
        f"{M}.nodes.hgx-1.vlans.bond0.30.routes.0",
        f"leads to 0.0.0.0/0 with metric 1024 as {M}.bonds.bond0.routes.0 does",
        {f"{M}.nodes.hgx-1.vlans.bond0.30.routes.0.metric": 2048},
    ),
    "default route with a destination, which Talos refuses": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1", "destination": "0.0.0.0/0"}]},
        f"{M}.bonds.bond0.routes.0.destination",
        "leave destination out: without it the route is the default one",
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}]},
    ),
    "routing table that Talos does not know": Wrong(
        {f"{M}.nodes.hgx-1.vlans.bond0.30.routes": [{"gateway": "10.30.0.1", "table": "nope"}]},
        f"{M}.nodes.hgx-1.vlans.bond0.30.routes.0.table",
        "its number from 1 to 252",
        {f"{M}.nodes.hgx-1.vlans.bond0.30.routes.0.table": 30},
    ),
    "metric of more than 32 bits": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1", "metric": 2**32}]},
        f"{M}.bonds.bond0.routes.0.metric",
        "0 to 4294967295",
        {f"{M}.bonds.bond0.routes.0.metric": 2**32 - 1},
    ),
    "hash policy that Talos does not know": Wrong(
        {f"{M}.bonds.bond0.xmit_hash_policy": "vlan+srcmac"},
        f"{M}.bonds.bond0.xmit_hash_policy",
        "layer3+4",
        {f"{M}.bonds.bond0.xmit_hash_policy": "layer3+4"},
    ),
    "route for packets larger than its link's": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1", "mtu": 9001}]},
        f"{M}.bonds.bond0.routes.0.mtu",
        "more than bond0 carries, 9000",
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1", "mtu": 9000}]},
    ),
    "gateway outside of every subnet": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.6.0.1"}]},
        f"{M}.bonds.bond0.routes.0.gateway",
        "outside of every subnet of bond0",
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}]},
    ),
    "gateway is the machine itself": Wrong(
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.11"}]}, f"{M}.bonds.bond0.routes.0.gateway", "own address"
    ),
    "services larger than the API takes": Wrong(
        {f"{N}.services": "10.128.0.0/11"},
        f"{N}.services",
        "larger than the Kubernetes API",
        {f"{N}.services": "10.128.0.0/12"},
    ),
    "services without room for the platform's": Wrong(
        {f"{N}.services": "10.80.0.0/27"}, f"{N}.services", "too few addresses", {f"{N}.services": "10.80.0.0/26"}
    ),
    "services of the other family": Wrong({f"{N}.services": "fd00:10::/112"}, f"{N}.services", "is IPv6"),
    "services on loopback": Wrong({f"{N}.services": "127.16.0.0/16"}, f"{N}.services", "is loopback"),
    "pods in multicast": Wrong({f"{N}.pods": "239.0.0.0/16"}, f"{N}.pods", "is multicast"),
    "pods link-local": Wrong({f"{N}.pods": "169.254.0.0/16"}, f"{N}.pods", "is link-local"),
    "pods overlap nodes": Wrong(
        {f"{N}.pods": "10.5.0.0/16"},
        f"{N}.pods",
        "10.5.0.0/16 overlaps nodes (10.5.0.0/24)",
        {f"{N}.pods": "10.64.0.0/16"},
    ),
    "pods overlap services": Wrong({f"{N}.services": "10.64.128.0/20"}, f"{N}.services", "overlaps pods"),
    "pods larger than can be divided": Wrong(
        {f"{N}.pods": "32.0.0.0/7"}, f"{N}.pods", "larger than", {f"{N}.pods": "32.0.0.0/8"}
    ),
    "pods smaller than a node's part": Wrong({f"{N}.pods": "10.64.0.0/25"}, f"{N}.pods", "has no /24 for each"),
    "a subnet with host bits": Wrong(
        {f"{N}.services": "10.80.1.0/16"}, f"{N}.services", "is no subnet", {f"{N}.services": "10.80.0.0/16"}
    ),
    "resolver among the Services": Wrong(
        {f"{M}.resolvers": ["10.80.0.10"]}, f"{M}.resolvers.0", "lies in 10.80.0.0/16 of networks.services"
    ),
    "time server that is everybody": Wrong(
        {f"{M}.time_servers": ["255.255.255.255"]},
        f"{M}.time_servers.0",
        "is no address of a server",
        {f"{M}.time_servers": ["10.5.0.4"]},
    ),
    "clients of a multicast group": Wrong(
        {f"{M}.firewall.clients": ["10.0.0.0/8", "224.0.0.0/4"]},
        f"{M}.firewall.clients.1",
        "holds no address that a packet comes from",
        {f"{M}.firewall.clients": ["10.0.0.0/8"]},
    ),
    "clients on the machine itself": Wrong(
        {f"{M}.firewall.clients": ["10.0.0.0/8", "127.0.0.0/8"]},
        f"{M}.firewall.clients.1",
        "take it out",
        {f"{M}.firewall.clients": ["10.0.0.0/8"]},
    ),
    "time server among the pods": Wrong({f"{M}.time_servers": ["10.64.3.1"]}, f"{M}.time_servers.0", "networks.pods"),
    "log server on loopback": Wrong(
        {f"{M}.kernel_log": "tcp://127.0.0.1:6051"}, f"{M}.kernel_log", "no address of a server"
    ),
    "two machines with one rail address": Wrong(
        {f"{M}.nodes.hgx-2.links.rail0.addresses": ["10.9.0.21/24"]},
        f"{M}.nodes.hgx-2.links.rail0.addresses",
        "is an address of hgx-1 too; got 10.9.0.21",
    ),
    # Endpoint
    "endpoint with a path": Wrong(
        {f"{M}.endpoint": "https://10.5.0.10:6443/api"},
        f"{M}.endpoint",
        "no address",
        {f"{M}.endpoint": "https://10.5.0.10:6443"},
    ),
    "endpoint on loopback": Wrong(
        {f"{M}.endpoint": "https://127.0.0.1:6443", f"{N}.vip": None, f"{N}.vip_link": None},
        f"{M}.endpoint",
        "no address of",
    ),
    "endpoint that is no number of octets": Wrong(
        {f"{M}.endpoint": "https://10.5.0.300:6443"}, f"{M}.endpoint", "no address of"
    ),
    "endpoint at a port of nobody": Wrong(
        {f"{M}.endpoint": "https://10.5.0.10:8443"},
        f"{M}.endpoint",
        "names port 8443 of the VIP",
        {f"{M}.endpoint": "https://10.5.0.10:6443"},
    ),
    "endpoint of a dead control plane": Wrong(
        {
            f"{M}.endpoint": "https://10.5.0.11:6443",
            f"{N}.vip": None,
            f"{N}.vip_link": None,
            f"{M}.nodes.cp-1.dead": True,
        },
        f"{M}.endpoint",
        "is the address of cp-1, which is dead",
        {f"{M}.endpoint": "https://10.5.0.12:6443"},
    ),
    "no way back to the administrators": Wrong(
        {f"{M}.bonds.bond0.routes": [{"destination": "10.6.0.0/24", "gateway": "10.5.0.1"}]},
        f"{M}.bonds.bond0.routes",
        "holds no way to 10.1.0.0/24 of firewall.admins",
        {f"{M}.bonds.bond0.routes": [{"destination": "10.0.0.0/8", "gateway": "10.5.0.1"}]},
    ),
    "no routes at all": Wrong(
        {f"{M}.bonds.bond0.routes": None},
        f"{M}.bonds.bond0.routes",
        "holds no way to 10.1.0.0/24 of firewall.admins",
        {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}]},
    ),
    "a rail in the nodes' own subnet": Wrong(
        {f"{M}.nodes.hgx-1.links.rail0.addresses": ["10.5.0.51/24"]},
        f"{M}.nodes.hgx-1.links.rail0.addresses.0",
        "lies in networks.nodes (10.5.0.0/24), which another link of the machine is in",
        {f"{M}.nodes.hgx-1.links.rail0.addresses": ["10.9.0.51/24"]},
    ),
    "clients of the other family": Wrong(
        {f"{M}.firewall.clients": ["fd00::/8"]},
        f"{M}.firewall.clients",
        "has no IPv4 subnet",
        {f"{M}.firewall.clients": ["fd00::/8", "10.0.0.0/8"]},
    ),
    "administrators of the other family": Wrong(
        {f"{M}.firewall.admins": ["fd00::/8"]},
        f"{M}.firewall.admins",
        "so `up` would reach no machine",
        {f"{M}.firewall.admins": ["10.1.0.0/24"]},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


RIGHT: dict[str, dict[str, Any]] = {
    "clients from anywhere": {f"{M}.firewall.clients": ["0.0.0.0/0"]},
    "a router's link-local address": {f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}, {"gateway": "fe80::1"}]},
    "two default routes of two metrics": {
        f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}, {"gateway": "10.5.0.254", "metric": 2048}]
    },
    "a default route in a table of its own": {
        f"{M}.nodes.hgx-1.vlans.bond0.30.routes": [{"gateway": "10.30.0.1", "table": 30}]
    },
    "a route from the machine's own address": {
        f"{M}.nodes.cp-1.bonds": {"bond0": {"routes": [{"gateway": "10.5.0.1", "source": "10.5.0.11"}]}}
    },
    "a route from an address that DHCP may give": {
        f"{M}.nodes.cp-1.links": {"eno3": {"dhcp": True, "routes": [{"gateway": "10.7.0.1", "source": "10.7.0.9"}]}},
        f"{M}.nodes.cp-1.bonds": {"bond0": {"routes": []}},
    },
    "logs to a pod on a node's network": {f"{M}.firewall": None, f"{M}.kernel_log": "tcp://10.5.0.16:6051"},
    "logs to a pod on a node's network that the firewall lets in": {
        f"{M}.firewall.load_balancer_ports": [443, 6051],
        f"{M}.kernel_log": "tcp://10.5.0.16:6051",
    },
    "administrators in the storage network": {f"{M}.firewall.admins": ["10.1.0.0/24", "10.30.0.0/24"]},
    "a gateway at a port that control planes alone use": {
        "gateway.port": 6443,
        f"{M}.firewall.load_balancer_ports": [6443],
    },
    "a bond of which another link is off": {f"{M}.nodes.hgx-1.links.rail1.up": False},
}


@pytest.mark.parametrize("change", RIGHT.values(), ids=list(RIGHT))
def test_what_can_work_is_accepted(change: dict[str, Any]) -> None:
    assert plan_values(changed(prod_with_links(), change), "site.yaml").site
