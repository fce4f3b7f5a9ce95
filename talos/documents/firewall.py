"""The ingress firewall: its documents, and the rules that a cluster of this platform needs.

In block mode Talos still lets in loopback, pod and service networks and a little ICMP; everything else needs a rule.
RoCE is not seen by it: RDMA traffic does not pass the kernel's packet filter.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from floor import node_ports
from talos.documents import checks
from talos.documents.document import Document, Part, Wire, checked, wired
from talos.documents.problems import ConfigProblem

Role = Literal["controlplane", "worker"]

# UDP port of the pod network between nodes, by CNI.
OVERLAY_PORTS = {"cilium": 8472, "flannel": 4789}


@dataclass(frozen=True, kw_only=True)
class NetworkDefaultActionConfig(Document):
    """What happens to ingress that no rule names."""

    kind: ClassVar[str] = "NetworkDefaultActionConfig"

    ingress: Literal["accept", "block"]


@dataclass(frozen=True, kw_only=True)
class Ingress(Part):
    """A subnet that may come in, without the part `excluded`."""

    subnet: str = field(metadata=checked(checks.cidr))
    excluded: str | None = field(default=None, metadata=wired("except", check=checks.cidr))

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.excluded is None or not all(map(checks.is_cidr, (self.subnet, self.excluded))):
            return
        inner, outer = (ipaddress.ip_network(cidr, strict=False) for cidr in (self.excluded, self.subnet))
        if inner.version != outer.version or inner[0] not in outer or inner[-1] not in outer:
            yield ConfigProblem(
                path=("excluded",),
                what=f"lies outside of {self.subnet}",
                got=self.excluded,
                fix="exclude a part of the subnet",
            )


@dataclass(frozen=True, kw_only=True)
class NetworkRuleConfig(Document):
    """Who may reach these ports; a port is a number or a range `30000-32767`."""

    kind: ClassVar[str] = "NetworkRuleConfig"

    name: str
    ports: tuple[int | str, ...] = field(metadata=checked(checks.ports))
    protocol: Literal["tcp", "udp", "icmp", "icmpv6"] = "tcp"
    ingress: tuple[Ingress, ...]

    def wire(self) -> Wire:
        # Talos groups ports and protocol, and an empty list of sources means: no source.
        selector: dict[str, Any] = {"ports": list(self.ports), "protocol": self.protocol}
        return {"name": self.name, "portSelector": selector, "ingress": [rule.wire() for rule in self.ingress]}


def cluster_rules(
    role: Role,
    *,
    admins: tuple[str, ...],
    control_planes: tuple[str, ...],
    nodes: tuple[str, ...],
    cni: Literal["cilium", "flannel", "external"],
    load_balancer_ports: tuple[int | str, ...] = (),
    clients: tuple[str, ...] = (),
    takes_pods: bool = False,
    talos_api_pods: tuple[str, ...] = (),
    metrics_pods: tuple[str, ...] = (),
    pod_network_metrics: bool = False,
) -> tuple[Document, ...]:
    """Block by default, and the rules without which a node of `role` does not work.

    `admins` may reach the Talos and Kubernetes APIs; `control_planes` and `nodes` (all nodes) are subnets in CIDR
    form; `clients` may reach `load_balancer_ports` where gateways answer: on workers, and on control planes that take
    pods. An external pod network needs its own rules in addition. `talos_api_pods` are subnets of pods that may reach
    the Talos API of control planes: a pod on the machine itself comes by its own address. `metrics_pods` are those of
    pods that read metrics of machines: without one nothing listens there for etcd. `pod_network_metrics`: they read
    Cilium's too.
    """
    every = (*nodes, *control_planes)
    readers = (*every, *metrics_pods)
    rules = [
        _rule("talos-api", (50000,), (*admins, *every, *(talos_api_pods if role == "controlplane" else ()))),
        _rule("kubelet", (node_ports.KUBELET,), readers),
        *([_rule("pod-network", (OVERLAY_PORTS[cni],), every, protocol="udp")] if cni in OVERLAY_PORTS else []),
        _rule("node-metrics", (node_ports.NODE_EXPORTER,), readers),
    ]
    if cni == "cilium":
        rules.append(_rule("cilium-health", (4240,), every))
        if pod_network_metrics:
            rules.append(_rule("cilium-metrics", (node_ports.CILIUM_AGENT, node_ports.HUBBLE), readers))
    if role == "controlplane":
        rules += [
            _rule("trustd", (50001,), every),
            _rule("kubernetes-api", (6443,), (*admins, *readers)),
            _rule("etcd", ("2379-2380",), control_planes),
            *([_rule("etcd-metrics", (node_ports.ETCD,), readers)] if metrics_pods else []),
        ]
    if load_balancer_ports and (takes_pods or role == "worker"):
        rules.append(_rule("load-balancers", load_balancer_ports, (*clients, *every)))
    return (NetworkDefaultActionConfig(ingress="block"), *rules)


def _rule(
    name: str, ports: tuple[int | str, ...], subnets: tuple[str, ...], *, protocol: Literal["tcp", "udp"] = "tcp"
) -> NetworkRuleConfig:
    sources = tuple(Ingress(subnet=subnet) for subnet in dict.fromkeys(subnets))
    return NetworkRuleConfig(name=name, ports=ports, protocol=protocol, ingress=sources)
