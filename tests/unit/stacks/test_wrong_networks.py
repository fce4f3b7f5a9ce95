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
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_mended(wrong)
