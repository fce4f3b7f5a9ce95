"""Credentials of the lab's own processes: one ServiceAccount each, with the rights it needs, as a kubeconfig file."""

from __future__ import annotations

from pathlib import Path

from kubernetes import client

from lab.cluster import api, controlplane
from lab.cluster.parts import present, status_of
from lab.paths import Lab

NAMESPACE = "kube-system"
_VALID_S = 365 * 24 * 3600


def kubeconfig(lab: Lab, account: str) -> Path:
    """Where the kubeconfig of this account is."""
    return controlplane.credentials_folder(lab) / f"{account}.kubeconfig"


def ensure(lab: Lab, connection: client.ApiClient, account: str, *, role: str) -> None:
    """Make the account, bind the ClusterRole to it, and write its kubeconfig unless that is there."""
    api.apply(
        connection,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"lab:{account}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        },
    )
    path = kubeconfig(lab, account)
    if path.exists():
        return
    request = client.AuthenticationV1TokenRequest.model_validate({"spec": {"expirationSeconds": _VALID_S}})
    answer = client.CoreV1Api(connection).create_namespaced_service_account_token(account, NAMESPACE, request)
    controlplane.write_kubeconfig(lab, path, {"token": present(status_of(answer).token)})
