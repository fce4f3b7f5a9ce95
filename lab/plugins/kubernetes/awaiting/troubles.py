"""What keeps a workload from being ready: its Pods' waiting reasons and the last warnings about it."""

from __future__ import annotations

from typing import Final

from lab.plugins.kubernetes.awaiting.readiness import pod_problems, section
from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.objects import GroupVersionKind, gvk_of, metadata, name_of, namespace_of
from lab.plugins.kubernetes.properties import Tree

_PODS: Final = GroupVersionKind("", "v1", "Pod")
_EVENTS: Final = GroupVersionKind("", "v1", "Event")
_REPLICA_SETS: Final = GroupVersionKind("apps", "v1", "ReplicaSet")
_REVISION: Final = "deployment.kubernetes.io/revision"
_MOST: Final = 8


def troubles_of(cluster: Cluster, live: Tree) -> list[str]:
    """Lines for the user, the most likely cause first. Raises what the requests raise."""
    gvk, namespace = gvk_of(live), namespace_of(live)
    if (gvk.group, gvk.kind) in {("", "Service"), ("networking.k8s.io", "Ingress")}:
        return []
    pods: list[Tree] = []
    owner = live
    selector = section(section(live, "spec"), "selector").get("matchLabels")
    if isinstance(selector, dict) and selector:
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        if gvk.kind == "Deployment":
            owner = _newest_replica_set(cluster, live, labels) or live
        pods = [pod for pod in cluster.items_of(_PODS, namespace, labels=labels) if _owned(pod, owner)]
    problems = [problem for pod in pods for problem in pod_problems(pod)]
    names = [name_of(live), name_of(owner), *(name_of(pod) for pod in pods if pod_problems(pod))]
    return list(dict.fromkeys([*problems, *_warnings(cluster, namespace, names)]))[:_MOST]


def _newest_replica_set(cluster: Cluster, deployment: Tree, labels: str) -> Tree | None:
    revision = (metadata(deployment).get("annotations") or {}).get(_REVISION)
    for item in cluster.items_of(_REPLICA_SETS, namespace_of(deployment), labels=labels):
        if _owned(item, deployment) and (metadata(item).get("annotations") or {}).get(_REVISION) == revision:
            return item
    return None


def _owned(obj: Tree, owner: Tree) -> bool:
    uid = metadata(owner).get("uid")
    return any(reference.get("uid") == uid for reference in metadata(obj).get("ownerReferences") or [])


def _warnings(cluster: Cluster, namespace: str, names: list[str]) -> list[str]:
    """The last warning of each reason about the named objects."""
    latest: dict[tuple[str, str], tuple[str, str]] = {}
    for event in cluster.items_of(_EVENTS, namespace, fields="type=Warning"):
        about = section(event, "involvedObject")
        if about.get("name") not in names:
            continue
        when = str(event.get("lastTimestamp") or event.get("eventTime") or "")
        key = (str(about.get("name")), str(event.get("reason")))
        text = f"[{about.get('kind')} {about.get('name')}]: [{event.get('reason')}] {event.get('message')}"
        if key not in latest or when >= latest[key][0]:
            latest[key] = (when, text)
    return [text for _, text in sorted(latest.values(), reverse=True)]
