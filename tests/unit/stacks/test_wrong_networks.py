"""Address plans, endpoints and links that read well and would fail on the rack: each is refused."""

from __future__ import annotations

import pytest

from tests.unit.stacks.wrong_sites import M, N, Wrong, refused_and_mended

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
    "services without room for DNS": Wrong(
        {f"{N}.services": "10.80.0.0/29"}, f"{N}.services", "too few addresses", {f"{N}.services": "10.80.0.0/28"}
    ),
    "services of the other family": Wrong({f"{N}.services": "fd00:10::/112"}, f"{N}.services", "is IPv6"),
    "services on loopback": Wrong({f"{N}.services": "127.16.0.0/16"}, f"{N}.services", "is loopback"),
    "pods in multicast": Wrong({f"{N}.pods": "239.0.0.0/16"}, f"{N}.pods", "is multicast"),
    "pods link-local": Wrong({f"{N}.pods": "169.254.0.0/16"}, f"{N}.pods", "is link-local"),
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
    "time server among the pods": Wrong({f"{M}.time_servers": ["10.64.3.1"]}, f"{M}.time_servers.0", "networks.pods"),
    "log server on loopback": Wrong(
        {f"{M}.kernel_log": "tcp://127.0.0.1:6051"}, f"{M}.kernel_log", "no address of a server"
    ),
    "two machines with one rail address": Wrong(
        {f"{M}.nodes.hgx-2.links.rail0.addresses": ["10.9.0.21/24"]},
        f"{M}.nodes.hgx-2.links.rail0.addresses",
        "give 10.9.0.21 to hgx-1 and hgx-2",
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
    # Links
    "a machine without its own address": Wrong(
        {f"{M}.bonds.bond0.node_address": False, f"{M}.bonds.bond0.routes": []},
        f"{M}.bonds.bond0",
        "no other link carries the machine's own address",
        {f"{M}.bonds.bond0.node_address": True},
    ),
    "an address on two links": Wrong(
        {f"{M}.roles.hgx.links.rail0.node_address": True}, f"{M}.bonds.bond0.node_address", "on a second link"
    ),
    "a link in two bonds": Wrong(
        {f"{M}.bonds.bond1": {"links": ["eno2"], "bond_mode": "active-backup"}},
        f"{M}.bonds.bond1.links",
        "eno2, which is in bond0",
    ),
    "a VLAN on a bond's member": Wrong(
        {f"{M}.roles.hgx.vlans.bond0.30.parent": "eno1"}, f"{M}.roles.hgx.vlans.bond0.30.parent", "a member of a bond"
    ),
    "a VLAN on a misspelt bond": Wrong(
        {f"{M}.roles.hgx.vlans.bond0.30.parent": "bnd0"},
        f"{M}.roles.hgx.vlans.bond0.30.parent",
        "did you mean 'bond0'",
        {f"{M}.roles.hgx.vlans.bond0.30.parent": "bond0"},
    ),
    "one VLAN twice": Wrong(
        {f"{M}.roles.hgx.vlans.storage": {"parent": "bond0", "vlan_id": 30}},
        f"{M}.roles.hgx.vlans.storage.vlan_id",
        "30 on bond0 is",
    ),
    "a VLAN larger than its bond": Wrong(
        {f"{M}.bonds.bond0.mtu": 1500}, f"{M}.roles.hgx.vlans.bond0.30.mtu", "more than bond0 carries, 1500"
    ),
    "a bond that watches no link": Wrong(
        {f"{M}.bonds.bond0.miimon_ms": 0},
        f"{M}.bonds.bond0.miimon_ms",
        "so a dead one stays in use, and the kernel refuses updelay_ms and downdelay_ms",
        {f"{M}.bonds.bond0.miimon_ms": 100},
    ),
    "a bond's delay between two looks": Wrong(
        {f"{M}.bonds.bond0.updelay_ms": 150},
        f"{M}.bonds.bond0.updelay_ms",
        "the kernel would take 100",
        {f"{M}.bonds.bond0.updelay_ms": 200},
    ),
    "rings that no card has": Wrong(
        {f"{M}.ethernet": {"eno1": {"rings": {"foo": 3, "rx": 4096}}}},
        f"{M}.ethernet.eno1.rings",
        "rx, rx-mini",
        {f"{M}.ethernet": {"eno1": {"rings": {"rx": 4096}}}},
    ),
    "channels below zero": Wrong(
        {f"{M}.ethernet": {"eno1": {"channels": {"rx": -1, "combined": 8}}}},
        f"{M}.ethernet.eno1.channels",
        "numbers from 0 on for rx, tx, other, combined",
        {f"{M}.ethernet": {"eno1": {"channels": {"combined": 8}}}},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_mended(wrong)
