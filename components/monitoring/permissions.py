"""Accounts of the programs that measure, and what each may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rule = Mapping[str, Any]
READ = ("get", "list", "watch")
_GROUP = "rbac.authorization.k8s.io"


def rule(group: str, resources: Sequence[str], verbs: Sequence[str] = READ) -> Rule:
    """One permission; group: empty for Kubernetes' core."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def service_account(name: str, namespace: str) -> dict[str, Any]:
    """The account; its pods name it, and mount its token where they ask the API server."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def in_namespace(name: str, namespace: str, account: Mapping[str, Any], rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """Role and RoleBinding: what the account may do in one namespace."""
    return _granted("Role", {"name": name, "namespace": namespace}, account, rules)


def in_cluster(name: str, account: Mapping[str, Any], rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """ClusterRole and ClusterRoleBinding: what it may do everywhere, and with what is in no namespace."""
    return _granted("ClusterRole", {"name": name}, account, rules)


def _granted(
    kind: str, meta: Mapping[str, str], account: Mapping[str, Any], rules: Sequence[Rule]
) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": kind,
            "metadata": dict(meta),
            "rules": [dict(entry) for entry in rules],
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": f"{kind}Binding",
            "metadata": dict(meta),
            "subjects": [{"kind": "ServiceAccount", **account["metadata"]}],
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": meta["name"]},
        },
    ]
