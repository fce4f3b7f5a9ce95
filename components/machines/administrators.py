"""What people of each role may do with a cluster's objects, by groups that the API server reads out of their tokens.

Anyone who may change a pod's template, or make a pod, can mount any Secret beside it: an operator restarts pods by
deleting them, and changes no Deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi

from components.component import Component

Role = Literal["viewer", "operator", "admin"]

_GROUP = "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
# Kinds by API group; of the core all but Secrets, and no role of RBAC anywhere.
_READABLE: Mapping[str, Sequence[str]] = {
    "": (
        *("configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes", "persistentvolumeclaims"),
        *("persistentvolumes", "pods", "replicationcontrollers", "resourcequotas", "serviceaccounts", "services"),
    ),
    "admissionregistration.k8s.io": ("*",),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apiregistration.k8s.io": ("apiservices",),
    "apps": ("*",),
    "autoscaling": ("*",),
    "batch": ("*",),
    "coordination.k8s.io": ("leases",),
    "discovery.k8s.io": ("*",),
    "events.k8s.io": ("events",),
    "metrics.k8s.io": ("*",),
    "networking.k8s.io": ("*",),
    "node.k8s.io": ("*",),
    "policy": ("*",),
    "resource.k8s.io": ("*",),
    "scheduling.k8s.io": ("*",),
    "storage.k8s.io": ("*",),
    # Of programs that a site may have: where this program writes their kinds, these name Secrets and hold none.
    **dict.fromkeys(
        (
            *("gateway.networking.k8s.io", "gateway.envoyproxy.io", "aigateway.envoyproxy.io"),
            *("inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai"),
            *("acme.cert-manager.io", "cert-manager.io", "cilium.io", "external-secrets.io", "keda.sh"),
            *("barmancloud.cnpg.io", "leaderworkerset.x-k8s.io", "postgresql.cnpg.io"),
            *("longhorn.io", "mellanox.com", "metallb.io", "monitoring.coreos.com", "nfd.k8s-sigs.io", "nvidia.com"),
            *("snapshot.storage.k8s.io", "talos.dev"),
        ),
        ("*",),
    ),
}
_ROLES: Mapping[Role, Sequence[Mapping[str, Any]]] = {
    "viewer": [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(_READ)} for group, kinds in _READABLE.items()
    ],
    "operator": [
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        # Kubernetes has no narrower right to cordon: labels and taints come with it.
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
    ],
}
_CLUSTER_ADMIN = "cluster-admin"


def role_objects(groups: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """The objects by suffix. groups: of each role, as the API server names them; a role without any has no binding."""
    objects: dict[str, dict[str, Any]] = {
        role: {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _name(role)},
            "rules": [dict(rule) for rule in rules],
        }
        for role, rules in _ROLES.items()
    }
    bound = {
        "viewers": (_name("viewer"), (*groups["viewer"], *groups["operator"])),
        "operators": (_name("operator"), groups["operator"]),
        "admins": (_CLUSTER_ADMIN, groups["admin"]),
    }
    for suffix, (role, names) in bound.items():
        if names:
            objects[suffix] = _binding(f"platform-{suffix}", role, names)
    return objects


def _name(role: Role) -> str:
    return f"platform-{role}"


def _binding(name: str, role: str, groups: Sequence[str]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": [{"kind": "Group", "apiGroup": _GROUP, "name": group} for group in groups],
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
    }


class Administrators(Component, token="administrators:Administrators"):
    """Roles, and who has them."""

    def __init__(
        self, name: str, groups: Mapping[str, Sequence[str]], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, opts)
        for suffix, body in role_objects(groups).items():
            self.child(suffix, body)
        self.finish()
