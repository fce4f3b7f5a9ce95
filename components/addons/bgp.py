"""Objects of Cilium's BGP control plane: what is announced, to which routers, and from which machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.specs.bgp import BgpPeerSpec, BgpSpec
from floor.address_ranges import AddressRange

NAME = "inference-platform"
_API = "cilium.io"
_LABELS = {"inference-platform/announces": "load-balancers"}
# Of three messages two may be lost (RFC 4271, section 4.4).
_MESSAGES_IN_HOLD_TIME = 3
# A selector that takes every Service: without one, Cilium announces none.
_EVERY_SERVICE = {"matchExpressions": [{"key": "inference-platform/announced", "operator": "NotIn", "values": ["no"]}]}


def _body(kind: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str], *absent: str) -> dict[str, Any]:
    """The object; `up` waits until Cilium has looked at it, and none of these conditions is met."""
    waited = [f"condition={_API}/{condition}=False" for condition in absent]
    annotations = {"annotations": {"pulumi.com/waitFor": json.dumps(waited)}} if waited else {}
    metadata = {"name": name, **({"labels": dict(labels)} if labels else {}), **annotations}
    return {"apiVersion": f"{_API}/v2", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def bgp_advertisement() -> dict[str, Any]:
    """Every address of a Service of type LoadBalancer, as a route of its own: /32, or /128."""
    route = {
        "advertisementType": "Service",
        "service": {"addresses": ["LoadBalancerIP"]},
        "selector": _EVERY_SERVICE,
    }
    return _body("CiliumBGPAdvertisement", NAME, {"advertisements": [route]}, _LABELS)


def bgp_peer(name: str, peer: BgpPeerSpec, ranges: Sequence[AddressRange]) -> dict[str, Any]:
    """How machines speak to this router. Ready once Cilium has the Secret, where there is one."""
    families = sorted({f"ipv{block.first.version}" for block in ranges})
    restart: dict[str, Any] = {"enabled": peer.graceful_restart_s > 0}
    if peer.graceful_restart_s:
        restart["restartTimeSeconds"] = peer.graceful_restart_s
    spec = {
        "transport": {"peerPort": peer.port},
        "timers": {
            "holdTimeSeconds": peer.hold_time_s,
            "keepAliveTimeSeconds": peer.hold_time_s // _MESSAGES_IN_HOLD_TIME,
        },
        "gracefulRestart": restart,
        "ebgpMultihop": peer.hops,
        "families": [
            {"afi": family, "safi": "unicast", "advertisements": {"matchLabels": _LABELS}} for family in families
        ],
        **({"authSecretRef": peer.password_secret} if peer.password_secret else {}),
    }
    return _body("CiliumBGPPeerConfig", _peer_config(name), spec, {}, "MissingAuthSecret")


def bgp_node(node: str, peers: Sequence[str], bgp: BgpSpec) -> dict[str, Any]:
    """The sessions of one machine. One object each: a machine that two of them select would lose its sessions."""
    sessions = [
        {
            "name": name,
            "peerAddress": bgp.peers[name].address,
            "peerASN": bgp.peers[name].asn,
            "peerConfigRef": {"name": _peer_config(name)},
        }
        for name in peers
    ]
    spec = {
        "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node}},
        "bgpInstances": [{"name": NAME, "localASN": bgp.local_asn, "peers": sessions}],
    }
    absent = ("NoMatchingNode", "MissingPeerConfigs", "ConflictingClusterConfig")
    return _body("CiliumBGPClusterConfig", node, spec, {}, *absent)


def _peer_config(name: str) -> str:
    return f"{NAME}-{name}"
