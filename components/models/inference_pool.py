"""The pool of a model's replicas and the endpoint picker (EPP) that chooses one of them for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pulumi

from components.component import Component
from components.namespace import NamespaceHandle
from components.network_policies import Peer, allow_ingress, read_by
from components.placing import budget, spread
from components.specs.inference_pool import METRICS_PORT, PICKER, InferencePoolSpec, PickerPlan, picker_name
from manifests.render import render_yaml
from talos.draining import SUCCESSOR_FIRST

_GRPC_PORT = 9002
_HEALTH_PORT = 9003
# Until the gateway asks a picker that is ending nothing more: a DNS answer's life and Envoy's look-ups, 5 s each.
_NOTICE_S = 15
# The picker breaks off what it still sees so long after SIGTERM (controller-runtime's graceful shutdown).
_ENDING_S = 30
# Until a picker listens: it makes a certificate first, some seconds of one core.
_START_S = 60
# A request that waits in a picker's queue for longer is refused; its client tries again, or a replica is missing.
_HELD_S = 60
POOL_API = "inference.networking.k8s.io"


def picker_authority(model: str, namespace: str) -> str:
    """Host and port at which the gateway asks the picker."""
    return f"{picker_name(model)}.{namespace}.svc:{_GRPC_PORT}"


def inference_pool(model: str, namespace: str, *, selector: Mapping[str, str], port: int) -> dict[str, Any]:
    """Pool over the Pods that `selector` matches. A request waits for the picker: without one, none is served."""
    return {
        "apiVersion": f"{POOL_API}/v1",
        "kind": "InferencePool",
        "metadata": {"name": model, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": dict(selector)},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {
                "group": "",
                "kind": "Service",
                "name": picker_name(model),
                "port": {"number": _GRPC_PORT},
                # The AI gateway knows this mode alone; writing it keeps preview honest.
                "failureMode": "FailClose",
            },
        },
    }


def picker_config(model: str, namespace: str, spec: InferencePoolSpec, plan: PickerPlan) -> dict[str, Any]:
    """ConfigMap with the picker's plugins and their weights."""
    text = render_yaml(
        "endpoint-picker.yaml.j2",
        block_tokens=plan.block_tokens,
        prefix_tokens=plan.prefix_tokens,
        kv_blocks=plan.kv_blocks,
        queue_threshold=plan.queue_threshold,
        shedding_queue_threshold=plan.shedding_queue_threshold,
        kv_threshold=plan.kv_threshold,
        bands=plan.bands,
        held_s=_HELD_S,
        held_bytes=plan.held_bytes,
        prefix_weight=spec.prefix_weight,
        queue_weight=spec.queue_weight,
        kv_weight=spec.kv_weight,
        adapter_weight=spec.adapter_weight if plan.adapters_turn else 0,
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": picker_name(model), "namespace": namespace},
        "data": {"config.yaml": text},
    }


def picker_rbac(model: str, namespace: str) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding: read the pool and its Pods."""
    name = picker_name(model)
    meta = {"name": name, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    read = ["get", "list", "watch"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": read},
                {"apiGroups": [POOL_API], "resources": ["inferencepools"], "verbs": read},
                {
                    "apiGroups": ["inference.networking.x-k8s.io"],
                    "resources": ["inferenceobjectives", "inferencemodelrewrites"],
                    "verbs": read,
                },
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        },
    ]


def picker_service(model: str, namespace: str) -> dict[str, Any]:
    """The name under which the gateway finds the pickers, without an address of its own.

    Through one address, Envoy would keep its connection to a picker that is ending, and new requests would go there
    until it closes. Out of DNS it learns which are ready: the ending one finishes its streams and gets nothing new.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": picker_name(model),
            "namespace": namespace,
            # The picker comes after its pool, and the pool names this.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "clusterIP": "None",
            "selector": picker_labels(model),
            "ports": [
                {"name": "grpc", "port": _GRPC_PORT, "targetPort": "grpc", "protocol": "TCP", "appProtocol": "h2c"},
                {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"},
            ],
        },
    }


def picker_deployment(
    model: str,
    namespace: str,
    spec: InferencePoolSpec,
    *,
    image: str,
    longest_stream_s: int,
    config_digest: str,
    followed: bool = False,
) -> dict[str, Any]:
    """The pickers. A successor is ready before one ends, and the one that ends sees its requests through.

    longest_stream_s: of the pool's replicas; without the front door's filter, the AI gateway's sends it whole answers.
    config_digest: changes when the configuration does, so that the picker restarts with it (it reads it once).
    followed: whether how full the pool is decides about requests; its metrics are as of a second ago then.
    """
    alone = spec.pickers == 1
    hold_s = _NOTICE_S + max(0, longest_stream_s - _ENDING_S)
    probe = {"grpc": {"port": _HEALTH_PORT, "service": "inference-extension"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": picker_name(model), "namespace": namespace},
        "spec": {
            "replicas": spec.pickers,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": picker_labels(model)},
            "template": {
                "metadata": {
                    # Of several, a drain takes one at a time: their budget sees to that.
                    "labels": {**picker_labels(model), **(SUCCESSOR_FIRST if alone else {})},
                    "annotations": {"inference-platform/config-digest": config_digest},
                },
                "spec": {
                    "serviceAccountName": picker_name(model),
                    "terminationGracePeriodSeconds": hold_s + _ENDING_S + _NOTICE_S,
                    **spread(picker_labels(model)),
                    "containers": [
                        {
                            "name": "epp",
                            "image": image,
                            "args": [
                                f"--pool-name={model}",
                                f"--pool-namespace={namespace}",
                                f"--pool-group={POOL_API}",
                                f"--grpc-port={_GRPC_PORT}",
                                f"--grpc-health-port={_HEALTH_PORT}",
                                f"--metrics-port={METRICS_PORT}",
                                "--metrics-endpoint-auth=false",
                                f"--refresh-metrics-interval={spec.metrics_interval_ms}ms",
                                *(["--refresh-prometheus-metrics-interval=1s"] if followed else []),
                                "--config-file=/config/config.yaml",
                                "--tracing=false",
                                "--zap-encoder=json",
                            ],
                            "env": [
                                _from_field("NAMESPACE", "metadata.namespace"),
                                _from_field("POD_NAME", "metadata.name"),
                            ],
                            "ports": [
                                {"name": "grpc", "containerPort": _GRPC_PORT, "protocol": "TCP"},
                                {"name": "grpc-health", "containerPort": _HEALTH_PORT, "protocol": "TCP"},
                                {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
                            ],
                            # Its health service answers seconds before it takes requests, while it makes a certificate.
                            "startupProbe": {
                                "tcpSocket": {"port": _GRPC_PORT},
                                "periodSeconds": 1,
                                "failureThreshold": _START_S,
                            },
                            "livenessProbe": {**probe, "periodSeconds": 10},
                            "readinessProbe": {**probe, "periodSeconds": 2},
                            "lifecycle": {"preStop": {"sleep": {"seconds": hold_s}}},
                            "resources": {"requests": {"cpu": spec.cpu, "memory": spec.memory}},
                            "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
                        }
                    ],
                    "volumes": [{"name": "config", "configMap": {"name": picker_name(model)}}],
                },
            },
        },
    }


def picker_network_policy(
    model: str, namespace: str, clients: Sequence[Peer], scrapers: Sequence[Peer] = ()
) -> dict[str, Any]:
    """Who may ask the pickers, and who may read their metrics. Their health is for the kubelet alone."""
    rules = [(clients, [_GRPC_PORT]), *read_by(scrapers, METRICS_PORT)]
    return allow_ingress(picker_name(model), namespace, picker_labels(model), rules)


def picker_labels(model: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": PICKER, "app.kubernetes.io/instance": model}


def _from_field(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


@dataclass(frozen=True, kw_only=True)
class InferencePoolArgs:
    """The site's settings, the replicas to choose from, and the picker's image."""

    spec: InferencePoolSpec
    plan: PickerPlan
    namespace: NamespaceHandle
    selector: dict[str, str]
    port: int
    image: str
    longest_stream_s: int
    needs: Sequence[pulumi.Resource]
    """The definitions of the pool's kinds."""
    asked: pulumi.Resource
    """What has Envoy ask the picker. It goes after the picker, and so long after the route."""
    beside: Sequence[pulumi.Resource]
    """What the replicas wait for. Pickers wait for it too, so that the engine deletes both in one step: it deletes what
    has as long a chain of dependencies, waits, and deletes the next. Else a removal takes the drain times of both.
    """
    clients: Sequence[Peer]
    """Pods that may ask the picker: the gateway's proxies."""
    scrapers: Sequence[Peer] = ()
    """Pods that may read its metrics."""
    followers: Sequence[Peer] = ()
    """Pods that read each second how full the pool is, and decide by it."""


@dataclass(frozen=True, kw_only=True)
class InferencePoolHandle:
    """A pool that routes can name once every one of `ready` is there."""

    name: str
    namespace: str
    ready: list[pulumi.Resource]


class InferencePool(Component, token="inference_pool:InferencePool"):
    """Pool, picker, and what the picker may read."""

    def __init__(self, name: str, args: InferencePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space, there = args.namespace.name, [args.namespace.ready]
        config = picker_config(name, space, args.spec, args.plan)
        made = self.child("picker-config", config, depends_on=there)
        rbac = [
            self.child(f"picker-{body['kind'].lower()}", body, depends_on=there) for body in picker_rbac(name, space)
        ]
        service = self.child("picker-service", picker_service(name, space), depends_on=there)
        pool = self.child(
            "pool",
            inference_pool(name, space, selector=args.selector, port=args.port),
            depends_on=[service, *args.needs],
        )
        picker = self.child(
            "picker",
            picker_deployment(
                name,
                space,
                args.spec,
                image=args.image,
                longest_stream_s=args.longest_stream_s,
                config_digest=sha256(config["data"]["config.yaml"].encode()).hexdigest()[:16],
                followed=bool(args.followers),
            ),
            depends_on=[made, pool, args.asked, *rbac, *args.beside],
        )
        if args.spec.pickers > 1:
            self.child(
                "picker-disruption-budget", budget(picker_name(name), space, picker_labels(name)), depends_on=there
            )
        readers = [*args.scrapers, *args.followers]
        self.child("picker-network-policy", picker_network_policy(name, space, args.clients, readers), depends_on=there)
        self.handle = InferencePoolHandle(name=name, namespace=space, ready=[pool, picker])
        self.finish(name=name)
