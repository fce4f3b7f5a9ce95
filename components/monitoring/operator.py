"""The Prometheus operator: makes pods and configuration out of the monitors, rules and servers of one namespace."""

from __future__ import annotations

from typing import Any

from components.monitoring.permissions import READ, in_namespace, rule, service_account
from components.monitoring.pods import deployment

NAME = "prometheus-operator"
API_GROUP = "monitoring.coreos.com"
API = f"{API_GROUP}/v1"
PORT = 8080
_RESOURCES = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
# Server that it makes pods for, of which it writes the state.
_SERVERS = ("prometheuses", "alertmanagers")
_INPUTS = ("alertmanagerconfigs", "podmonitors", "probes", "prometheusrules", "scrapeconfigs", "servicemonitors")


def operator_permissions(namespace: str) -> list[dict[str, Any]]:
    """Account, Role and RoleBinding: the operator works in this namespace alone.

    What it may do is what release 0.85 asks for, without the kinds that no site uses.
    """
    write = (*READ, "create", "update", "patch", "delete")
    account = service_account(NAME, namespace)
    rules = [
        rule(API_GROUP, [*_SERVERS, *_INPUTS]),
        rule(
            API_GROUP, [f"{kind}/{part}" for kind in _SERVERS for part in ("status", "finalizers")], ("update", "patch")
        ),
        rule(API_GROUP, [f"{kind}/status" for kind in _INPUTS], ("update", "patch")),
        rule("apps", ["statefulsets"], write),
        rule("", ["configmaps", "secrets"], write),
        rule("", ["services", "services/finalizers"], ("get", "create", "update", "patch", "delete")),
        rule("", ["pods"], (*READ, "delete")),
        rule("", ["namespaces"], ("get",)),
    ]
    return [account, *in_namespace(NAME, namespace, account, rules)]


def operator_deployment(namespace: str, *, image: str, reloader_image: str) -> dict[str, Any]:
    """The operator. reloader_image: what it puts beside each server, to load a changed configuration."""
    return deployment(
        NAME,
        namespace,
        image=image,
        args=[
            f"--namespaces={namespace}",
            f"--prometheus-config-reloader={reloader_image}",
            "--config-reloader-cpu-request=10m",
            "--config-reloader-cpu-limit=0",
            "--config-reloader-memory-request=32Mi",
            "--config-reloader-memory-limit=64Mi",
            f"--web.listen-address=:{PORT}",
            "--log-format=json",
        ],
        ports={"http": PORT},
        ready=("/healthz", "http"),
        alive=("/healthz", "http"),
        resources=_RESOURCES,
    )
