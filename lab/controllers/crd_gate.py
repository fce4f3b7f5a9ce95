"""Keeps a controller from starting before the custom resources exist that it looks for once, at its start."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from lab.controllers.charts import Manifest
from lab.controllers.releases import RESTRICTED

KUBECTL_IMAGE = "registry.k8s.io/kubectl:v1.36.3"
ROLE = "lab-wait-for-crds"

_GATEWAY_API = (
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
)
_ENVOY_GATEWAY = (
    "backends",
    "backendtrafficpolicies",
    "clienttrafficpolicies",
    "envoyextensionpolicies",
    "envoypatchpolicies",
    "envoyproxies",
    "httproutefilters",
    "securitypolicies",
)
_AI_GATEWAY = (
    "aigatewayroutes",
    "aiservicebackends",
    "backendsecuritypolicies",
    "gatewayconfigs",
    "mcproutes",
    "quotapolicies",
)

# Envoy Gateway skips a kind that is missing at its start and never looks again; the AI gateway exits.
REQUIRED_CRDS = (
    *(f"{plural}.gateway.networking.k8s.io" for plural in _GATEWAY_API),
    *(f"{plural}.gateway.envoyproxy.io" for plural in _ENVOY_GATEWAY),
    *(f"{plural}.aigateway.envoyproxy.io" for plural in _AI_GATEWAY),
    "inferencepools.inference.networking.k8s.io",
)


def gated(deployment: Manifest) -> Manifest:
    """The Deployment with init containers that wait, without an end, until every required CRD is established."""
    gate = copy.deepcopy(deployment)
    spec = gate["spec"]["template"]["spec"]
    definitions = [f"crd/{name}" for name in REQUIRED_CRDS]
    # kubectl's image has no shell for a loop, so there is a step for "exists" and one for "is served".
    steps = {
        "wait-for-crds": ["wait", "--for=create", *definitions, "--timeout=-1s"],
        "wait-for-crds-served": ["wait", "--for=condition=Established", *definitions, "--timeout=120s"],
    }
    spec["initContainers"] = [
        *(
            {
                "name": name,
                "image": KUBECTL_IMAGE,
                "args": arguments,
                "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                "securityContext": RESTRICTED,
            }
            for name, arguments in steps.items()
        ),
        *spec.get("initContainers", []),
    ]
    return gate


def permissions(accounts: Iterable[tuple[str, str]]) -> list[Manifest]:
    """Reading CRDs, for service accounts given as (namespace, name)."""
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
                }
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
