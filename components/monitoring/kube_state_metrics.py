"""kube-state-metrics: what the API server knows of the platform's objects, as metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from components.monitoring.permissions import in_cluster, in_namespace, rule, service_account
from components.monitoring.pods import deployment

NAME = "kube-state-metrics"
PORT, _OWN_PORT = 8080, 8081
_RESOURCES = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
# By API group, what rules and dashboards ask about.
_KINDS = {
    "": ("persistentvolumeclaims", "pods", "services"),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("jobs",),
}
CRON_JOBS, AUTOSCALERS = "cronjobs", "horizontalpodautoscalers"
# Of parts that few sites have.
_MORE = {CRON_JOBS: "batch", AUTOSCALERS: "autoscaling"}


def _kinds(more: Collection[str]) -> dict[str, tuple[str, ...]]:
    groups = dict(_KINDS)
    for kind in sorted(more):
        groups[_MORE[kind]] = (kind, *groups.get(_MORE[kind], ()))
    return groups


def state_permissions(namespace: str, watched: Sequence[str], more: Collection[str] = ()) -> list[dict[str, Any]]:
    """Account, and what it may list: these kinds in the watched namespaces, and the cluster's nodes.

    more: of CRON_JOBS and AUTOSCALERS, those that are watched too.
    """
    account = service_account(NAME, namespace)
    rules = [rule(group, kinds, ("list", "watch")) for group, kinds in _kinds(more).items()]
    return [
        account,
        *in_cluster(f"{namespace}-{NAME}", account, [rule("", ["nodes"], ("list", "watch"))]),
        *(body for space in watched for body in in_namespace(NAME, space, account, rules)),
    ]


def state_deployment(
    namespace: str, watched: Sequence[str], *, image: str, more: Collection[str] = ()
) -> dict[str, Any]:
    """The exporter. It sees no Secret and no ConfigMap. more: as `state_permissions` has it."""
    kinds = sorted(["nodes", *(kind for kinds in _kinds(more).values() for kind in kinds)])
    return deployment(
        NAME,
        namespace,
        image=image,
        args=[
            f"--namespaces={','.join(sorted(watched))}",
            f"--resources={','.join(kinds)}",
            f"--port={PORT}",
            f"--telemetry-port={_OWN_PORT}",
        ],
        ports={"http-metrics": PORT, "telemetry": _OWN_PORT},
        ready=("/readyz", "telemetry"),
        alive=("/livez", "http-metrics"),
        resources=_RESOURCES,
    )
