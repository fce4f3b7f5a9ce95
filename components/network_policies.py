"""Who may reach which pod: ingress is denied by default, and each policy opens what its pods need.

Builders alone: each component declares the policies of its own pods, and each namespace denies the rest. The kubelet's
probes pass on every CNI. What pods may reach is restricted where a policy does so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Peer = Mapping[str, Any]
Rule = Mapping[str, Any]
ANY_NAMESPACE = "*"
_API = "networking.k8s.io/v1"


def deny_ingress(namespace: str) -> dict[str, Any]:
    """Every pod of the namespace refuses everything that no other policy lets in."""
    return {
        "apiVersion": _API,
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny-ingress", "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def allow_ingress(
    name: str,
    namespace: str,
    pods: Mapping[str, str],
    rules: Sequence[tuple[Sequence[Peer], Sequence[int]]],
    *,
    egress: Sequence[Rule] | None = None,
) -> dict[str, Any]:
    """Pods with these labels let these peers reach these TCP ports; a rule without peers lets every client in, and one
    without ports opens all.

    egress: what the pods may reach, and nothing else; None leaves that open.
    """
    ingress = [
        {
            **({"from": [dict(peer) for peer in peers]} if peers else {}),
            **({"ports": [{"protocol": "TCP", "port": port} for port in ports]} if ports else {}),
        }
        for peers, ports in rules
    ]
    return {
        "apiVersion": _API,
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": dict(pods)},
            "policyTypes": ["Ingress"] if egress is None else ["Ingress", "Egress"],
            # The API server keeps no empty list, and takes one for a change.
            **({"ingress": ingress} if ingress else {}),
            **({"egress": [dict(rule) for rule in egress]} if egress else {}),
        },
    }


def read_by(scrapers: Sequence[Peer], *ports: int) -> list[tuple[Sequence[Peer], Sequence[int]]]:
    """The rule by which these read metrics at these ports; none without them: a rule without peers opens to all."""
    return [(scrapers, ports)] if scrapers else []


def peer(labels: Mapping[str, str], namespace: str | None = None) -> Peer:
    """Pods with these labels, of the policy's own namespace, of the one that is named, or of ANY_NAMESPACE."""
    pods = {"podSelector": {"matchLabels": dict(labels)}}
    if namespace is None:
        return pods
    labelled = {} if namespace == ANY_NAMESPACE else {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {**pods, "namespaceSelector": labelled}
