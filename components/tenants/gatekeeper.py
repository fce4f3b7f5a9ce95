"""The service that decides about each caller: Envoy asks it before anything else, and lets nothing pass without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.gateway.connections import Connection
from components.namespace import NamespaceHandle
from components.network_policies import Peer, allow_ingress, peer, read_by
from components.placing import budget, spread
from components.pod_security import CONTAINER_SECURITY, pod_security
from components.tenants.callers import CallersHandle
from components.tenants.directory import CHANGES_URL, SECRETS_FOLDER, shared_secrets
from floor.headers import CLIENT_HEADER, TENANT_HEADER
from services.directory import variables

GATEKEEPER = "gatekeeper"
LABELS = {"app.kubernetes.io/name": GATEKEEPER}
_DECISIONS_PORT, STATE_PORT = 9001, 9002
_USER = 65532
_REPLICAS = 2
# Until proxies have learned that a pod is leaving, and then for requests that wait.
_ENDING_S = 30
_TENANTS, _KEYS, _KEPT = "/etc/tenants", "/etc/keys", "/var/cache/gatekeeper"


def gatekeeper_connection(namespace: str, parallel: int) -> Connection:
    """How Envoy reaches it. parallel: requests that one Envoy pod carries at once, each of which may wait for it."""
    authority = f"{GATEKEEPER}.{namespace}.svc:{_DECISIONS_PORT}"
    # Below the time for a decision, so that the other one is asked before that ends.
    return Connection(name=f"inference-platform/{GATEKEEPER}", authority=authority, parallel=parallel, connect_s=1)


def deployment(namespace: str, *, image: str, known: CallersHandle, directory: bool) -> dict[str, Any]:
    """directory: whether the site has one."""
    probe = {"httpGet": {"path": "/readyz", "port": "state"}, "periodSeconds": 2}
    arguments = [
        f"--listen=:{_DECISIONS_PORT}",
        f"--listen-state=:{STATE_PORT}",
        f"--tenants-file={_TENANTS}/tenants.json",
        f"--keys-file={_KEYS}/keys.json",
        f"--client-header={CLIENT_HEADER}",
        f"--tenant-header={TENANT_HEADER}",
    ]
    volumes = {
        _TENANTS: {"name": "tenants", "configMap": {"name": known.tenants}},
        _KEYS: {"name": "keys", "secret": {"secretName": known.keys, "defaultMode": 0o440}},
        _KEPT: {"name": "kept", "emptyDir": {"sizeLimit": "64Mi"}},
    }
    if directory:
        arguments += [
            f"--directory={CHANGES_URL.format(namespace=namespace)}",
            f"--peers={GATEKEEPER}.{namespace}.svc:{STATE_PORT}",
            f"--kept-file={_KEPT}/directory.json",
            f"--pepper-file={SECRETS_FOLDER}/{variables.PEPPER_KEY}",
            f"--token-file={SECRETS_FOLDER}/{variables.READER_KEY}",
        ]
        volumes |= {SECRETS_FOLDER: shared_secrets(variables.PEPPER_KEY, variables.READER_KEY)}
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": pod_security(_USER),
        "terminationGracePeriodSeconds": _ENDING_S,
        "containers": [
            {
                "name": GATEKEEPER,
                "image": image,
                "args": arguments,
                "env": [{"name": "GOMEMLIMIT", "value": "450MiB"}],
                "ports": [
                    {"name": "decisions", "containerPort": _DECISIONS_PORT, "protocol": "TCP"},
                    {"name": "state", "containerPort": STATE_PORT, "protocol": "TCP"},
                ],
                "readinessProbe": probe,
                "livenessProbe": {
                    "httpGet": {"path": "/healthz", "port": "state"},
                    "timeoutSeconds": 5,
                    "failureThreshold": 6,
                },
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": dict(CONTAINER_SECURITY),
                "volumeMounts": [
                    {"name": volume["name"], "mountPath": path, **({} if path == _KEPT else {"readOnly": True})}
                    for path, volume in volumes.items()
                ],
            }
        ],
        "volumes": list(volumes.values()),
        **spread(LABELS),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": GATEKEEPER, "namespace": namespace, "labels": LABELS},
        "spec": {
            "replicas": _REPLICAS,
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def service(namespace: str) -> dict[str, Any]:
    """Without an address of its own: Envoy learns out of DNS which ones are ready, and leaves one that ends."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": GATEKEEPER, "namespace": namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "clusterIP": "None",
            "selector": LABELS,
            "ports": [
                {"name": "decisions", "port": _DECISIONS_PORT, "targetPort": "decisions", "protocol": "TCP"},
                {"name": "state", "port": STATE_PORT, "targetPort": "state", "protocol": "TCP"},
            ],
        },
    }


@dataclass(frozen=True, kw_only=True)
class GatekeeperArgs:
    """What it decides by, and who asks it."""

    known: CallersHandle
    directory: bool
    """Whether the site has one; its secrets are among `needs` then."""
    image: str
    namespace: NamespaceHandle
    proxies: Peer
    scrapers: Sequence[Peer]
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class GatekeeperHandle:
    """Decisions are made once `ready` is there."""

    ready: list[pulumi.Resource]


class Gatekeeper(Component, token="gatekeeper:Gatekeeper"):
    """Two pods, what they know, and who reaches them."""

    def __init__(self, name: str, args: GatekeeperArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space = args.namespace.name
        needs = [args.namespace.ready, *args.known.ready, *args.needs]
        pods = deployment(
            space,
            image=args.image,
            known=args.known,
            directory=args.directory,
        )
        entry = [
            ([args.proxies], [_DECISIONS_PORT]),
            ([peer(LABELS)], [STATE_PORT]),
            *read_by(args.scrapers, STATE_PORT),
        ]
        made = [
            self.child("service", service(space), depends_on=needs),
            self.child("network-policy", allow_ingress(GATEKEEPER, space, LABELS, entry), depends_on=needs),
            self.child("budget", budget(GATEKEEPER, space, LABELS), depends_on=needs),
            self.child("pods", pods, depends_on=needs),
        ]
        self.handle = GatekeeperHandle(ready=list(made))
        self.finish(service=GATEKEEPER)
