"""How much each tenant may use: Envoy asks the limit service before a request, and reports afterwards what it used.

Counters are kept in one store beside the gateway. A tenant's limits are data that a script hands on with its requests,
so a thousand tenants with limits of their own are four rules of the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.gateways import COUNTERS, LIMIT_SERVICE_PODS
from components.component import Component
from components.gateway.envoy_names import DECISIONS
from components.gateway.request_log import COUNTED
from components.namespace import NamespaceHandle
from components.network_policies import Peer, allow_ingress, peer
from components.objects import declare
from components.placing import Placing, placed, spread
from components.pod_security import CONTAINER_SECURITY, pod_security
from components.specs.limits import LIMITS, MOST_COUNTED, CountedUse, CountersSpec, limit_of, scope_of
from components.tenants.limit_scripts import USED
from floor import namespaces
from floor.headers import CLIENT_HEADER, MODEL_HEADER, TENANT_HEADER
from floor.metadata import DISPOSABLE
from floor.stateful import VOLUME

PORT = 6379
_LABELS = {"app.kubernetes.io/name": COUNTERS}
_USER = 999
_DATA = "/data"


def rate_limit(limits: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """`rateLimit` of the Gateway's BackendTrafficPolicy: a rule for each sort of limit that any tenant has.

    A counter is shared by all routes, so a tenant's models draw on one. Where the script's metadata is missing, the
    rule's own number holds: the largest of any tenant. Behind these come rules for limits of keys, and for each model
    that is limited for itself: they refuse no one without metadata, as most have no such limit. The cost of a request
    in tokens is known when its answer ends; at its beginning it is refused if the counter is past the limit already.
    """
    given = [(limit, most) for of_tenant in limits.values() for limit, most in of_tenant.items()]
    scopes = {scope_of(limit) for limit, _ in given}
    of_tenant, of_key = [{"name": TENANT_HEADER, "type": "Distinct"}], [{"name": CLIENT_HEADER, "type": "Distinct"}]
    rules = [
        _rule(limit, of_tenant, limit.key, max(most for key, most in given if key == limit.key))
        for limit in LIMITS
        if ("", "", limit.key) in scopes
    ]
    in_keys = {key for scope, _, key in scopes if scope == "keys"}
    rules += [_rule(limit, of_key, f"key.{limit.key}", MOST_COUNTED) for limit in LIMITS if limit.key in in_keys]
    for model in sorted({name for scope, name, _ in scopes if scope == "models"}):
        of_model = [*of_tenant, {"name": MODEL_HEADER, "type": "Exact", "value": model}]
        rules += [
            _rule(limit, of_model, limit_of("models", model, limit.key), MOST_COUNTED)
            for limit in LIMITS
            if ("models", model, limit.key) in scopes
        ]
    return {"type": "Global", "global": {"rules": rules}}


def counters_address(namespace: str) -> str:
    """Host and port of the store of the counters."""
    return f"{COUNTERS}.{namespace}.svc:{PORT}"


def _rule(limit: CountedUse, headers: Sequence[Mapping[str, str]], key: str, most: int) -> dict[str, Any]:
    """key: of the metadata with a request's own number. most: without it."""
    rule: dict[str, Any] = {
        "clientSelectors": [{"headers": [dict(header) for header in headers]}],
        "shared": True,
        "limit": {"requests": most, "unit": limit.unit, "fromMetadata": {"namespace": DECISIONS, "key": key}},
    }
    if limit.counts_tokens:
        used = {"namespace": COUNTED, "key": USED}
        rule["cost"] = {
            "request": {"from": "Number", "number": 0},
            "response": {"from": "Metadata", "metadata": used},
        }
    return rule


def limit_service(namespace: str, dns_domain: str, spec: CountersSpec, image: str) -> dict[str, Any]:
    """Fields of Envoy Gateway's configuration by which it starts the limit service, with counters in this namespace.

    Its own timeout of 20 ms would be a refusal whenever a node is busy; nothing waits longer in a service that answers.
    """
    return {
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {
                "rateLimitDeployment": {
                    "replicas": 2,
                    "container": {"image": image},
                    "pod": spread(LIMIT_SERVICE_PODS),
                },
                "rateLimitPDB": {"maxUnavailable": 1},
            },
        },
        "rateLimit": {
            "backend": {"type": "Redis", "redis": {"url": f"{COUNTERS}.{namespace}.svc.{dns_domain}:{PORT}"}},
            "timeout": "250ms",
            "failClosed": spec.when_away == "refuse",
        },
    }


def counters(
    namespace: str,
    spec: CountersSpec,
    *,
    image: str,
    storage_class: str,
    placing: Placing,
    readers: Sequence[Peer] = (),
) -> list[dict[str, Any]]:
    """The store of the counters: each change is on its volume within a second, so that a restart refills no one.

    placing: nodes that can mount a volume of the class. readers: pods that count in it, beside the limit service.
    """
    server = [
        "valkey-server",
        *("--dir", _DATA, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        # Full memory counts as counters that are away, and forgets none that still holds.
        *("--maxmemory", "384mb", "--maxmemory-policy", "noeviction"),
        # Who reaches it is the network policy's.
        *("--protected-mode", "no"),
    ]
    probe = {"tcpSocket": {"port": "store"}, "periodSeconds": 5, "timeoutSeconds": 3}
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": pod_security(_USER),
        "containers": [
            {
                "name": COUNTERS,
                "image": image,
                "command": server,
                "ports": [{"name": "store", "containerPort": PORT, "protocol": "TCP"}],
                "readinessProbe": probe,
                "livenessProbe": {**probe, "failureThreshold": 6},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": dict(CONTAINER_SECURITY),
                "volumeMounts": [{"name": "counters", "mountPath": _DATA}],
            }
        ],
        **placed(placing),
    }
    # Of another class it is another volume; the fields of a claim by template could not change.
    claim = f"{COUNTERS}-{storage_class}"
    pod["volumes"] = [{"name": "counters", "persistentVolumeClaim": {"claimName": claim}}]
    # Without it every window begins again, which is no loss that a site must be kept from.
    disposable = {"annotations": {DISPOSABLE: "true"}}
    named = {"name": COUNTERS, "namespace": namespace, "labels": _LABELS}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**named, "name": claim, **disposable},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": f"{spec.volume_gib}Gi"}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": named,
            "spec": {"selector": _LABELS, "ports": [{"name": "store", "port": PORT, "targetPort": "store"}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**named, **disposable},
            "spec": {
                "serviceName": COUNTERS,
                "replicas": 1,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": pod},
            },
        },
        allow_ingress(
            COUNTERS,
            namespace,
            _LABELS,
            [([peer(LIMIT_SERVICE_PODS, namespaces.ENVOY_GATEWAY), *readers], [PORT])],
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class LimitCountersArgs:
    """The store of the counters, and where its volume comes from."""

    spec: CountersSpec
    namespace: NamespaceHandle
    """Of the gateway."""
    image: str
    storage_class: str
    placing: Placing
    """Nodes that can mount a volume of the class."""
    readers: Sequence[Peer]
    """Pods that count in it, beside the limit service."""
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class LimitCountersHandle:
    """Counters that answer."""

    ready: list[pulumi.Resource]


class LimitCounters(Component, token="limits:LimitCounters"):
    """Service, store and who reaches it."""

    def __init__(self, name: str, args: LimitCountersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        bodies = counters(
            args.namespace.name,
            args.spec,
            image=args.image,
            storage_class=args.storage_class,
            placing=args.placing,
            readers=args.readers,
        )
        needs = [args.namespace.ready, *args.needs]
        volume, service, store, policy = bodies
        claim = self.stateful(
            "volume",
            VOLUME,
            lambda logical_name, options: declare(logical_name, volume, options),
            keeping="disposable",
            depends_on=needs,
        )
        made = [
            self.child("service", service, depends_on=needs),
            self.child("store", store, depends_on=[*needs, claim]),
            self.child("network-policy", policy, depends_on=needs),
        ]
        self.handle = LimitCountersHandle(ready=list(made))
        self.finish(service=COUNTERS)
