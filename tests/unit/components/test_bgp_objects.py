"""Objects of BGP, held against what the definitions of the pinned Cilium accept, as no lab has these definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from components.addons.bgp import bgp_advertisement, bgp_node, bgp_peer
from components.specs.bgp import MOST_ASN, BgpPeerSpec, BgpSpec
from floor.address_ranges import read_range
from stacks.facts import versions

pytestmark = pytest.mark.row("C.01")

# cilium/cilium pkg/k8s/apis/cilium.io/client/crds/v2 (ciliumbgpadvertisements, ciliumbgpclusterconfigs,
# ciliumbgppeerconfigs), version v2: a field's type, its bounds, or the texts that it accepts.
READ = "1.20.2"
ACCEPTED: dict[str, dict[str, type | range | Sequence[str]]] = {
    "CiliumBGPAdvertisement": {
        "advertisements[].advertisementType": ("PodCIDR", "CiliumPodIPPool", "Service", "Interface"),
        "advertisements[].selector.matchExpressions[].key": str,
        "advertisements[].selector.matchExpressions[].operator": ("In", "NotIn", "Exists", "DoesNotExist"),
        "advertisements[].selector.matchExpressions[].values[]": str,
        "advertisements[].service.addresses[]": ("LoadBalancerIP", "ClusterIP", "ExternalIP"),
    },
    "CiliumBGPClusterConfig": {
        "bgpInstances[].localASN": range(1, 2**32),
        "bgpInstances[].name": str,
        "bgpInstances[].peers[].name": str,
        "bgpInstances[].peers[].peerASN": range(2**32),
        "bgpInstances[].peers[].peerAddress": str,
        "bgpInstances[].peers[].peerConfigRef.name": str,
        "nodeSelector.matchLabels.*": str,
    },
    "CiliumBGPPeerConfig": {
        "authSecretRef": str,
        "ebgpMultihop": range(1, 256),
        "families[].advertisements.matchLabels.*": str,
        "families[].afi": ("ipv4", "ipv6"),
        "families[].safi": ("unicast",),
        "gracefulRestart.enabled": bool,
        "gracefulRestart.restartTimeSeconds": range(1, 4096),
        "timers.holdTimeSeconds": range(3, 2**16),
        "timers.keepAliveTimeSeconds": range(1, 2**16),
        "transport.peerPort": range(1, 2**16),
    },
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each field; any key of labels is `*`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            name = "*" if path.endswith("matchLabels") else key
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


def refused(body: dict[str, Any]) -> list[str]:
    """Fields that the definitions do not have, and values that they do not accept."""
    known = ACCEPTED[body["kind"]]
    return [
        f"{path}: {value}" for path, value in leaves(body["spec"]) if path not in known or not _fits(value, known[path])
    ]


def _fits(value: Any, accepted: type | range | Sequence[str]) -> bool:
    return isinstance(value, accepted) if isinstance(accepted, type) else value in accepted


def test_the_definitions_that_were_read_are_the_pinned_ones() -> None:
    assert versions.load().cilium.version == READ


@pytest.mark.parametrize("pool", ["10.7.0.0/28", "fd00::/120"])
@pytest.mark.parametrize("end", ["least", "most"])
def test_every_field_is_one_that_cilium_has_at_both_ends_of_its_range(end: str, pool: str) -> None:
    numbers = {
        "least": {"asn": 1, "port": 1, "hold_time_s": 3, "graceful_restart_s": 0, "hops": 1},
        "most": {"asn": MOST_ASN, "port": 65535, "hold_time_s": 65535, "graceful_restart_s": 4095, "hops": 255},
    }[end]
    peer = BgpPeerSpec.model_validate({"address": "10.5.0.1", "password_secret": "tor", **numbers})
    bgp = BgpSpec(local_asn=numbers["asn"], peers={"tor": peer})
    block = read_range(pool)
    assert block
    for body in (bgp_advertisement(), bgp_peer("tor", peer, [block]), bgp_node("infra-1", ["tor"], bgp)):
        assert body["apiVersion"] == "cilium.io/v2"
        assert refused(body) == []


def test_a_field_that_cilium_does_not_have_is_found() -> None:
    body = bgp_peer("tor", BgpPeerSpec(address="10.5.0.1", asn=64700), [])
    body["spec"] |= {"ebgpMultihopTTL": 2, "ebgpMultihop": 0}
    assert refused(body) == ["ebgpMultihop: 0", "ebgpMultihopTTL: 2"]


def test_every_service_is_announced() -> None:
    """A selector takes what has its label with another value, or has no such label, by `NotIn` alone."""
    (route,) = bgp_advertisement()["spec"]["advertisements"]
    (expression,) = route["selector"]["matchExpressions"]
    assert expression == {"key": "inference-platform/announced", "operator": "NotIn", "values": ["no"]}
