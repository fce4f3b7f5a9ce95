"""Keeps a controller from starting before the custom resources exist that it looks for once, at its start."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from lab.controllers.charts import Manifest
from lab.controllers.releases import RESTRICTED

KUBECTL_IMAGE = "registry.k8s.io/kubectl:v1.36.3"
ROLE = "lab-wait-for-crds"

# By API group. Envoy Gateway skips a kind that is missing at its start and never looks again; the AI gateway exits.
_PLURALS = {
    "gateway.networking.k8s.io": (
        "backendtlspolicies",
        "gatewayclasses",
        "gateways",
        "grpcroutes",
        "httproutes",
        "listenersets",
        "referencegrants",
        "tcproutes",
        "tlsroutes",
        "udproutes",
    ),
    "inference.networking.k8s.io": ("inferencepools",),
    "gateway.envoyproxy.io": (
        "backends",
        "backendtrafficpolicies",
        "clienttrafficpolicies",
        "envoyextensionpolicies",
        "envoypatchpolicies",
        "envoyproxies",
        "httproutefilters",
        "securitypolicies",
    ),
    "aigateway.envoyproxy.io": (
        "aigatewayroutes",
        "aiservicebackends",
        "backendsecuritypolicies",
        "gatewayconfigs",
        "mcproutes",
        "quotapolicies",
    ),
}
REQUIRED_CRDS = tuple(f"{plural}.{group}" for group, plurals in _PLURALS.items() for plural in plurals)


def gated(deployment: Manifest) -> Manifest:
    """The Deployment with init containers that wait, without an end, until every required CRD is served."""
    gate = copy.deepcopy(deployment)
    spec = gate["spec"]["template"]["spec"]
    spec["initContainers"] = [*_steps(), *spec.get("initContainers", [])]
    return gate


def _steps() -> list[Manifest]:
    """kubectl's image has no shell for a loop, and kubectl waits for the creation of one object alone.

    So there is a step for the last CRD of each group, and then one that lists every kind: until the API server's
    discovery knows them all, which is some seconds after they are established, it fails and is started again.
    """
    arguments = {
        f"wait-for-{plurals[-1]}": ["wait", "--for=create", f"crd/{plurals[-1]}.{group}", "--timeout=-1s"]
        for group, plurals in _PLURALS.items()
    }
    arguments["wait-for-crds"] = ["get", ",".join(REQUIRED_CRDS), "--all-namespaces", "--output=name"]
    return [
        {
            "name": name,
            "image": KUBECTL_IMAGE,
            "args": line,
            "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "securityContext": RESTRICTED,
        }
        for name, line in arguments.items()
    ]


def permissions(accounts: Iterable[tuple[str, str]]) -> list[Manifest]:
    """What the gate reads, for service accounts given as (namespace, name)."""
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ROLE},
            "rules": [
                {
                    "apiGroups": ["apiextensions.k8s.io"],
                    "resources": ["customresourcedefinitions"],
                    "verbs": ["get", "list", "watch"],
                },
                {"apiGroups": sorted(_PLURALS), "resources": ["*"], "verbs": ["list"]},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
            "subjects": [
                {"kind": "ServiceAccount", "namespace": namespace, "name": name} for namespace, name in accounts
            ],
        },
    ]
