"""NetworkPolicies, enforced in the lab's namespace by nftables: the emulated CNI's part that decides who reaches whom.

Every packet between pods passes the lab's namespace (see lab/runner/network.py), after kube-proxy has put a pod's
address in the place of a Service's. What comes from outside of the pods' network counts as the node's, which every
policy lets in, as it does the kubelet's probes. Egress is enforced towards pods, other addresses, and what listens in
the lab's namespace itself, as the API server and DNS do; in Kubernetes a pod may always reach its own node.
"""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Literal

from kubernetes import client

log = logging.getLogger(__name__)

TABLE = "lab_network_policies"
Object = Mapping[str, Any]
Direction = Literal["Ingress", "Egress"]
# Chain, direction, the selected pod's own address in a packet, hook and priority.
_CHAINS: tuple[tuple[str, Direction, str, str, int], ...] = (
    ("egress", "Egress", "saddr", "forward", -1),
    ("egress_to_nodes", "Egress", "saddr", "input", -1),
    ("ingress", "Ingress", "daddr", "forward", 0),
)
_ENDED = ("Succeeded", "Failed")


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector chooses these labels; an empty one chooses all, none (null) chooses nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(term, labels) for term in selector.get("matchExpressions") or ())


def _holds(term: Object, labels: Mapping[str, str]) -> bool:
    key, operator, values = term["key"], term["operator"], term.get("values") or ()
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    listed = labels.get(key) in values
    return listed if operator == "In" else not listed


def ruleset(
    policies: Sequence[Object], pods: Sequence[Object], namespaces: Sequence[Object], pod_network: IPv4Network
) -> str:
    """Input of `nft -f` that replaces the whole table; every packet between pods passes a chain of each direction."""
    space_labels = {space["metadata"]["name"]: space["metadata"].get("labels") or {} for space in namespaces}
    networked = [pod for pod in pods if _has_own_network(pod)]
    lines = [f"table ip {TABLE}", f"delete table ip {TABLE}", f"table ip {TABLE} {{"]
    # Base chains: what one accepts, the next still sees.
    for chain, direction, own, hook, priority in _CHAINS:
        rules = [f"type filter hook {hook} priority {priority}; policy accept;", "ct state established,related accept"]
        if direction == "Ingress":
            rules.append(f"ip saddr != {pod_network} accept")
        for pod in networked:
            chosen = [policy for policy in policies if _applies(policy, direction, pod)]
            if not chosen:
                continue
            address = pod["status"]["podIP"]
            for policy in chosen:
                for match in _allowed(policy, direction, pod, networked, space_labels):
                    rules.append(f"ip {own} {address} {match} accept".replace("  ", " "))
            rules.append(f"ip {own} {address} drop")
        lines += [f"  chain {chain} {{", *(f"    {rule}" for rule in rules), "  }"]
    return "\n".join([*lines, "}", ""])


def _has_own_network(pod: Object) -> bool:
    status = pod.get("status") or {}
    return bool(status.get("podIP")) and status.get("phase") not in _ENDED and not pod["spec"].get("hostNetwork")


def _labels(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _applies(policy: Object, direction: Direction, pod: Object) -> bool:
    spec = policy["spec"]
    # What the API server fills in where a policy names no types.
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    return (
        direction in types
        and policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and matches(spec.get("podSelector") or {}, _labels(pod))
    )


def _allowed(
    policy: Object,
    direction: Direction,
    pod: Object,
    pods: Sequence[Object],
    space_labels: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """nft matches of what a policy lets a pod receive or send."""
    other, peers_key = ("saddr", "from") if direction == "Ingress" else ("daddr", "to")
    for rule in policy["spec"].get(direction.lower()) or ():
        peers = rule.get(peers_key)
        if not peers:
            yield from _ports(rule, pod)
            continue
        home = policy["metadata"]["namespace"]
        for peer in peers:
            if block := peer.get("ipBlock"):
                without = "".join(f" ip {other} != {part}" for part in block.get("except") or ())
                yield from (f"ip {other} {block['cidr']}{without} {ports}" for ports in _ports(rule, pod))
                continue
            for candidate in pods:
                if _is_peer(peer, candidate, home, space_labels):
                    # A named port is the receiver's.
                    receiver = pod if direction == "Ingress" else candidate
                    address = candidate["status"]["podIP"]
                    yield from (f"ip {other} {address} {ports}" for ports in _ports(rule, receiver))


def _is_peer(peer: Object, pod: Object, home: str, space_labels: Mapping[str, Mapping[str, str]]) -> bool:
    space = pod["metadata"]["namespace"]
    spaces = peer.get("namespaceSelector")
    near = space == home if spaces is None else matches(spaces, space_labels.get(space, {}))
    return near and (peer.get("podSelector") is None or matches(peer["podSelector"], _labels(pod)))


def _ports(rule: Object, receiver: Object) -> Iterator[str]:
    """One match for each port of a rule; an empty one where it names none."""
    if not rule.get("ports"):
        yield ""
    for port in rule.get("ports") or ():
        protocol = (port.get("protocol") or "TCP").lower()
        number = port.get("port")
        if isinstance(number, str):
            number = _named(receiver, number)
            if number is None:
                continue
        if number is None:
            yield f"meta l4proto {protocol}"
        else:
            last = f"-{port['endPort']}" if port.get("endPort") else ""
            yield f"{protocol} dport {number}{last}"


def _named(pod: Object, name: str) -> int | None:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name:
                return int(port["containerPort"])
    return None


class NetworkPolicyController:
    """Loads the rules of all NetworkPolicies whenever pods, namespaces or policies change."""

    def __init__(self, connection: client.ApiClient, pod_network: IPv4Network, nft: Path) -> None:
        self._connection = connection
        self._core = client.CoreV1Api(connection)
        self._networking = client.NetworkingV1Api(connection)
        self._pod_network = pod_network
        self._nft = nft
        self._loaded = ""

    def reconcile(self) -> None:
        """Raises OSError when nft refuses the rules, so that the caller tries again."""
        text = ruleset(
            self._all(self._networking.list_network_policy_for_all_namespaces),
            self._all(self._core.list_pod_for_all_namespaces),
            self._all(self._core.list_namespace),
            self._pod_network,
        )
        if text == self._loaded:
            return
        done = subprocess.run([self._nft, "-f", "-"], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"nft refuses the rules of NetworkPolicies: {done.stderr.strip()}")
        self._loaded = text
        log.info("network policies: %s rules", text.count(" accept\n") + text.count(" drop\n"))

    def _all(self, listing: Any) -> list[Object]:
        answer = listing(_preload_content=False, _request_timeout=10)
        items: list[Object] = json.loads(answer.data)["items"]
        return items
