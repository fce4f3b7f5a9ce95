"""The lab's nft rules of NetworkPolicies: what they let pass is what Kubernetes documents."""

from __future__ import annotations

import shutil
import subprocess
from ipaddress import IPv4Network
from typing import Any

import pytest

from lab.cluster.policies import matches, ruleset

pytestmark = pytest.mark.row("004.11")

POD_NETWORK = IPv4Network("10.0.0.0/16")
NAMESPACES = [
    {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}} for name in ("models", "gateway")
]


def pod(name: str, address: str, *, namespace: str = "models", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8000}]}], **spec},
        "status": {"podIP": address, "phase": "Running"},
    }


PODS = [
    pod("engine", "10.0.1.1"),
    pod("picker", "10.0.1.2"),
    pod("envoy", "10.0.2.1", namespace="gateway"),
    pod("on-host", "10.0.9.9", hostNetwork=True),
]


def policy(name: str = "p", namespace: str = "models", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"podSelector": {}, **spec}}


def rules(*policies: dict[str, Any], chain: str = "ingress") -> list[str]:
    """The rules of a chain that are about single pods."""
    text = ruleset(policies, PODS, NAMESPACES, POD_NETWORK)
    body = text.partition(f"chain {chain} {{")[2].partition("}")[0]
    return [line.strip() for line in body.splitlines() if line.strip().startswith(("ip saddr 10.", "ip daddr 10."))]


def test_without_a_policy_everything_passes() -> None:
    assert rules() == []
    assert rules(chain="egress") == []


def test_a_policy_without_rules_denies_all_pods_of_its_namespace_alone() -> None:
    assert rules(policy()) == ["ip daddr 10.0.1.1 drop", "ip daddr 10.0.1.2 drop"]
    assert rules(policy(), chain="egress") == []


def test_peers_of_another_namespace_need_its_selector() -> None:
    envoy = {"podSelector": {"matchLabels": {"app": "envoy"}}}
    near = policy(podSelector={"matchLabels": {"app": "engine"}}, ingress=[{"from": [envoy]}])
    assert rules(near) == ["ip daddr 10.0.1.1 drop"]
    there = {**envoy, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}
    far = policy(podSelector={"matchLabels": {"app": "engine"}}, ingress=[{"from": [there], "ports": [{"port": 8000}]}])
    assert rules(far) == ["ip daddr 10.0.1.1 ip saddr 10.0.2.1 tcp dport 8000 accept", "ip daddr 10.0.1.1 drop"]


def test_policies_add_up_before_the_rest_is_dropped() -> None:
    picker = {"from": [{"podSelector": {"matchLabels": {"app": "picker"}}}]}
    assert rules(policy("deny"), policy("allow", ingress=[picker]))[:2] == [
        "ip daddr 10.0.1.1 ip saddr 10.0.1.2 accept",
        "ip daddr 10.0.1.1 drop",
    ]


def test_egress_to_addresses_but_for_some() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}
    allowed = policy(
        podSelector={"matchLabels": {"app": "engine"}},
        policyTypes=["Egress"],
        egress=[{"to": [block], "ports": [{"port": 443}]}],
    )
    assert rules(allowed, chain="egress") == [
        "ip saddr 10.0.1.1 ip daddr 0.0.0.0/0 ip daddr != 10.0.0.0/8 tcp dport 443 accept",
        "ip saddr 10.0.1.1 drop",
    ]
    assert rules(allowed) == []


@pytest.mark.parametrize(
    ("ports", "match"),
    [
        ([{"port": "http"}], " tcp dport 8000"),
        ([{"port": 53, "protocol": "UDP"}], " udp dport 53"),
        ([{"port": 8000, "endPort": 8010}], " tcp dport 8000-8010"),
        ([{"protocol": "TCP"}], " meta l4proto tcp"),
    ],
)
def test_ports(ports: list[dict[str, Any]], match: str) -> None:
    chosen = policy(podSelector={"matchLabels": {"app": "engine"}}, ingress=[{"ports": ports}])
    assert rules(chosen) == [f"ip daddr 10.0.1.1{match} accept", "ip daddr 10.0.1.1 drop"]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "x"}}, True),
        ({"matchLabels": {"app": "y"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_selectors(selector: dict[str, Any] | None, chosen: bool) -> None:
    assert matches(selector, {"app": "x"}) is chosen


def test_egress_is_enforced_towards_what_listens_in_the_labs_own_namespace() -> None:
    """The API server and DNS: such packets are not forwarded."""
    dns = {"ports": [{"protocol": "UDP", "port": 53}]}
    engines = policy(podSelector={"matchLabels": {"app": "engine"}}, policyTypes=["Egress"], egress=[dns])
    wanted = ["ip saddr 10.0.1.1 udp dport 53 accept", "ip saddr 10.0.1.1 drop"]
    assert rules(engines, chain="egress_to_nodes") == rules(engines, chain="egress") == wanted
    assert rules(engines) == []


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is installed with the lab's tools")
def test_nft_reads_the_rules() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}
    text = ruleset([policy(policyTypes=["Ingress", "Egress"], egress=[{"to": [block]}])], PODS, NAMESPACES, POD_NETWORK)
    done = subprocess.run(["nft", "--check", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
