"""What takes a node with a faulty GPU out of service, and lets a new one in: one pod, what it may do, who reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pulumi

from components.component import Component
from components.models.model_server import SERVER
from components.monitoring import gpu_faults, load_test, prometheus
from components.monitoring.permissions import in_cluster, in_namespace, rule, service_account
from components.monitoring.pods import NAME_LABEL, deployment
from components.network_policies import Peer, allow_ingress
from components.specs.monitoring import GpuFaultsSpec
from floor import namespaces
from services.load_test.verdict import LoadTest
from services.watcher import variables
from services.watcher.settings import NodeOffer

NAME = variables.SERVICE
LABELS = {NAME_LABEL: NAME}
_SPACE = namespaces.MONITORING
# Events about what is in no namespace are in this one.
_EVENTS = "default"
# Of the operator's DaemonSet, whose pods are ready once a node's driver, toolkit and plugin are validated.
_VALIDATOR = (namespaces.GPU_STACK, "app=nvidia-operator-validator")
_RESOURCES = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}


@dataclass(frozen=True, kw_only=True)
class WatcherArgs:
    """What it may do, and with which nodes."""

    spec: GpuFaultsSpec
    image: str
    nodes: Mapping[str, NodeOffer]
    """Those that take replicas."""
    may_lose: Sequence[str]
    """Of these, each without which the rest serves."""
    models_namespace: str
    validated: bool
    """Whether the GPU operator, which validates nodes, runs."""
    load_tests: Sequence[LoadTest]
    """Of new nodes; none where they are not tested under load."""
    load_image: str
    """vLLM's."""
    scrapers: Sequence[Peer]
    needs: Sequence[pulumi.Resource]
    """What measures."""


def settings(args: WatcherArgs) -> str:
    """As the watcher reads them, JSON."""
    given = {
        "prometheus": prometheus.ADDRESS,
        "nodes": {name: asdict(offer) for name, offer in sorted(args.nodes.items())},
        "may_lose": sorted(args.may_lose),
        "faults": gpu_faults.FAULTS,
        "measured": gpu_faults.MEASURED,
        "joining": gpu_faults.FABRIC_JOINING,
        "meanings": dict(gpu_faults.MEANINGS),
        "namespace": args.models_namespace,
        "replicas": f"{NAME_LABEL}={SERVER}",
        "drains": args.spec.on_fault == "drain",
        "checks": args.spec.checks,
        "load_tests": (_SPACE, f"{NAME_LABEL}={load_test.LABELS[NAME_LABEL]}") if args.load_tests else None,
        "validator": _VALIDATOR if args.validated else None,
    }
    # In the order of the faults, which goes by how bad they are.
    return json.dumps(given)


def permissions(args: WatcherArgs) -> list[dict[str, Any]]:
    """Account, and what it may do: read and mark nodes, evict replicas, write Events, and its one Lease.

    It makes no pod: a label on a node is all that starts a load test.
    """
    account = service_account(NAME, _SPACE)
    leases = rule("coordination.k8s.io", ["leases"], ("get", "update"))
    listed = rule("", ["pods"], ("list",))
    granted = {
        _SPACE: [
            rule("coordination.k8s.io", ["leases"], ("create",)),
            {**leases, "resourceNames": [NAME]},
            *([listed] if args.load_tests else []),
        ],
        args.models_namespace: [listed, rule("", ["pods/eviction"], ("create",))],
        _EVENTS: [rule("", ["events"], ("create",))],
        **({_VALIDATOR[0]: [listed]} if args.validated and args.spec.checks else {}),
    }
    return [
        account,
        *in_cluster(f"{_SPACE}-{NAME}", account, _of_nodes(args)),
        *(body for space, rules in granted.items() for body in in_namespace(NAME, space, account, rules)),
    ]


def _of_nodes(args: WatcherArgs) -> list[Mapping[str, Any]]:
    """A listing cannot be restricted to names; a taint on a control plane is no matter of the watcher."""
    return [rule("", ["nodes"], ("list",)), {**rule("", ["nodes"], ("patch",)), "resourceNames": sorted(args.nodes)}]


def pod(args: WatcherArgs) -> dict[str, Any]:
    """One pod; where a rollout or a lost node has two for a while, the Lease lets one of them drain."""
    return deployment(
        NAME,
        _SPACE,
        image=args.image,
        args=[f"--settings={settings(args)}", f"--namespace={_SPACE}", f"--port={variables.PORT}"],
        ports={"http-metrics": variables.PORT},
        ready=("/metrics", "http-metrics"),
        alive=("/metrics", "http-metrics"),
        resources=_RESOURCES,
    )


class Watcher(Component, token="watcher:Watcher"):
    """The pod, its permissions, and what measures it."""

    def __init__(self, name: str, args: WatcherArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        granted = [
            self.child("-".join([body["kind"].lower(), *_elsewhere(body)]), body, depends_on=args.needs)
            for body in permissions(args)
        ]
        policy = allow_ingress(NAME, _SPACE, LABELS, [(args.scrapers, [variables.PORT])])
        self.child("network-policy", policy, depends_on=args.needs)
        if args.load_tests:
            program = self.child("load-test-program", load_test.programs(), depends_on=args.needs)
            for test in args.load_tests:
                pods = load_test.daemon_set(test, args.load_image)
                granted.append(self.child(f"load-test-{test.name}", pods, depends_on=[program]))
        self.child("pod", pod(args), depends_on=granted)
        self.finish(nodes=sorted(args.nodes))


def _elsewhere(body: Mapping[str, Any]) -> list[str]:
    """The namespace of an object in another one than the pod's."""
    space = body["metadata"].get("namespace", _SPACE)
    return [] if space == _SPACE else [space]
