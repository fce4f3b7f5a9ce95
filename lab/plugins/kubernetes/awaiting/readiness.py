"""When is an object ready? Pure functions over its dict; what other objects report is asked elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lab.plugins.kubernetes.objects import GroupVersionKind, gvk_of, metadata, name_of
from lab.plugins.kubernetes.properties import Tree


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """How far an object is: ready or not, a line to show, and why it is not; `failed` means that it never will be."""

    ready: bool
    message: str = ""
    reasons: list[str] = field(default_factory=list)
    failed: bool = False

    @classmethod
    def not_yet(cls, message: str, reasons: list[str] | None = None) -> Readiness:
        """Without reasons, the message is the reason."""
        return cls(ready=False, message=message, reasons=[message] if reasons is None else reasons)

    @classmethod
    def never(cls, message: str, reasons: list[str]) -> Readiness:
        return cls(ready=False, message=message, reasons=reasons, failed=True)


READY: Final = Readiness(ready=True)


def section(obj: Tree, name: str) -> Tree:
    """`spec` or `status`, or an empty dict."""
    part = obj.get(name)
    return part if isinstance(part, dict) else {}


def conditions(obj: Tree) -> dict[str, Tree]:
    """The status conditions by type."""
    listed = section(obj, "status").get("conditions")
    return {str(item.get("type")): item for item in listed or [] if isinstance(item, dict)}


def condition_text(condition: Tree) -> str:
    return f"[{condition.get('reason', '')}] {condition.get('message', '')}".strip()


def observed(obj: Tree) -> bool:
    """Whether the controller has seen this generation."""
    seen = section(obj, "status").get("observedGeneration")
    return isinstance(seen, int) and seen >= int(metadata(obj).get("generation") or 0)


def _count(container: Tree, key: str, default: int = 0) -> int:
    value = container.get(key, default)
    return value if isinstance(value, int) else default


def deployment(obj: Tree) -> Readiness:
    status = section(obj, "status")
    wanted = _count(section(obj, "spec"), "replicas", 1)
    updated, available = _count(status, "updatedReplicas"), _count(status, "availableReplicas")
    old = max(_count(status, "replicas") - updated, 0)
    if not observed(obj):
        return Readiness.not_yet(
            "waiting for the Deployment controller", ["its controller has not seen this generation"]
        )
    known = conditions(obj)
    progressing, live = known.get("Progressing", {}), known.get("Available", {})
    reasons = [
        condition_text(item) for item in (progressing, live) if item and item.get("status") not in ("True", None)
    ]
    rolled_out = updated >= wanted and old == 0 and available >= wanted
    if rolled_out and live.get("status") == "True":
        return READY
    message = f"waiting for the rollout: {updated}/{wanted} Pods updated, {available}/{wanted} available"
    if old:
        message += f", {old} old ones to go"
    return Readiness.not_yet(message, [message, *reasons])


def stateful_set(obj: Tree) -> Readiness:
    spec, status = section(obj, "spec"), section(obj, "status")
    wanted = _count(spec, "replicas", 1)
    ready, current = _count(status, "readyReplicas"), _count(status, "currentReplicas")
    if not observed(obj):
        return Readiness.not_yet(
            "waiting for the StatefulSet controller", ["its controller has not seen this generation"]
        )
    on_delete = section(spec, "updateStrategy").get("type") == "OnDelete"
    first = int(metadata(obj).get("generation") or 0) <= 1
    here = wanted == _count(status, "replicas") and wanted == ready
    revisions = status.get("currentRevision"), status.get("updateRevision")
    advanced = bool(revisions[0]) and revisions[0] == revisions[1]
    done = here if on_delete and not first else here and advanced and current == wanted
    if done:
        return READY
    shown = ready if advanced else min(ready, _count(status, "updatedReplicas"))
    reasons = [] if here else [f"{shown} of {wanted} Pods are ready"]
    if not advanced and not on_delete:
        reasons.append(f'the rollout of revision "{revisions[1]}" in place of "{revisions[0]}" is not through')
    return Readiness.not_yet(f"waiting for the StatefulSet: {shown}/{wanted} Pods ready", reasons)


def daemon_set(obj: Tree) -> Readiness:
    status = section(obj, "status")
    if not observed(obj):
        return Readiness.not_yet(
            "waiting for the DaemonSet controller", ["its controller has not seen this generation"]
        )
    wanted = _count(status, "desiredNumberScheduled")
    updated, available = _count(status, "updatedNumberScheduled"), _count(status, "numberAvailable")
    ready = _count(status, "numberReady")
    on_delete = section(section(obj, "spec"), "updateStrategy").get("type") == "OnDelete"
    if (on_delete or updated >= wanted) and available >= wanted and ready >= wanted:
        return READY
    message = f"waiting for the DaemonSet: {updated}/{wanted} updated, {available}/{wanted} available"
    return Readiness.not_yet(message)


def job(obj: Tree) -> Readiness:
    status = section(obj, "status")
    known = conditions(obj)
    failed = known.get("Failed", {})
    if failed.get("status") == "True":
        return Readiness.never("Job failed", [condition_text(failed)])
    if known.get("Complete", {}).get("status") == "True":
        return READY
    counts = ", ".join(f"{_count(status, key)} {key}" for key in ("active", "succeeded", "failed"))
    message = f"the Job has not {'ended' if status.get('startTime') else 'begun'}; its Pods: {counts}"
    return Readiness.not_yet(message)


def pod(obj: Tree) -> Readiness:
    known = conditions(obj)
    for kind, doing in (("PodScheduled", "scheduled"), ("Initialized", "initialized"), ("Ready", "ready")):
        condition = known.get(kind, {})
        if condition.get("status") == "True":
            continue
        if kind == "Ready" and section(obj, "status").get("phase") == "Succeeded":
            continue
        message = f"Pod {name_of(obj)} is not {doing} yet"
        return Readiness.not_yet(message, pod_problems(obj) or [message])
    return READY


def pod_problems(obj: Tree) -> list[str]:
    """Why a Pod is not ready: scheduling, image, crash, with the name of the container."""
    status = section(obj, "status")
    known = conditions(obj)
    if known.get("Ready", {}).get("status") == "True" or status.get("phase") == "Succeeded":
        return []
    problems = []
    scheduled = known.get("PodScheduled", {})
    if scheduled.get("status") == "False" and scheduled.get("message"):
        problems.append(condition_text(scheduled))
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        problems += _container_problems(container)
    ready = known.get("Ready", {})
    if not problems and ready.get("message"):
        problems.append(condition_text(ready))
    return [f"[Pod {name_of(obj)}]: {problem}" for problem in problems]


def _container_problems(container: Tree) -> list[str]:
    if container.get("ready"):
        return []
    name = container.get("name")
    state = section(container, "state")
    waiting, ended = section(state, "waiting"), section(state, "terminated")
    before = section(section(container, "lastState"), "terminated")
    problems = []
    if waiting and waiting.get("reason") not in ("ContainerCreating", "PodInitializing", None):
        problems.append(f'container "{name}": [{waiting["reason"]}] {waiting.get("message", "")}'.rstrip())
    if ended and ended.get("exitCode"):
        text = ended.get("message") or f"its exit code is {ended['exitCode']}"
        problems.append(f'container "{name}": [{ended.get("reason", "Error")}] {text}')
    if before and before.get("exitCode"):
        text = f": {before['message']}" if before.get("message") else ""
        problems.append(
            f'container "{name}": the run before ended at {before.get("finishedAt")}, '
            f"{before.get('reason')}, code {before['exitCode']}{text}"
        )
    return problems


def volume(obj: Tree) -> Readiness:
    phase = section(obj, "status").get("phase")
    if phase in ("Available", "Bound"):
        return READY
    return Readiness.not_yet("waiting for the volume", [f"PersistentVolume is {phase or 'new'}"])


def quota(obj: Tree) -> Readiness:
    if section(obj, "spec").get("hard") == section(obj, "status").get("hard"):
        return READY
    return Readiness.not_yet("waiting for the quota", ["ResourceQuota is not in force yet"])


def replication_controller(obj: Tree) -> Readiness:
    wanted = _count(section(obj, "spec"), "replicas", 1)
    available = _count(section(obj, "status"), "availableReplicas")
    if available == wanted:
        return READY
    return Readiness.not_yet(f"waiting for the ReplicationController: {available}/{wanted} available")


def crd(obj: Tree) -> Readiness:
    known = conditions(obj)
    accepted = known.get("NamesAccepted", {})
    if known.get("Established", {}).get("status") == "True":
        return READY
    reasons = [condition_text(accepted)] if accepted.get("status") == "False" else []
    message = "waiting for the CustomResourceDefinition to be established"
    return Readiness.not_yet(message, reasons or [message])


def token_secret(obj: Tree) -> Readiness:
    if obj.get("type") != "kubernetes.io/service-account-token" or obj.get("data"):
        return READY
    return Readiness.not_yet("waiting for the token", ["no token was put into the Secret"])


def generic(obj: Tree) -> Readiness:
    """A kind without rules of its own: its Ready condition and observed generation, where it has them."""
    status = section(obj, "status")
    if "observedGeneration" in status and not observed(obj):
        return Readiness.not_yet("waiting for the controller", ["the controller has not seen this generation"])
    ready = conditions(obj).get("Ready", {})
    if ready and ready.get("status") != "True":
        return Readiness.not_yet("waiting for its Ready condition", [condition_text(ready)])
    return READY


Rule = Callable[[Tree], Readiness]

_RULES: Final[dict[tuple[str, str], Rule]] = {
    ("apps", "Deployment"): deployment,
    ("apps", "StatefulSet"): stateful_set,
    ("apps", "DaemonSet"): daemon_set,
    ("batch", "Job"): job,
    ("", "Pod"): pod,
    ("", "PersistentVolume"): volume,
    ("", "ResourceQuota"): quota,
    ("", "ReplicationController"): replication_controller,
    ("", "Secret"): token_secret,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): crd,
}

# Some kinds give up before the resource's own time limit.
_SHORT_LIMITS_S: Final[dict[tuple[str, str], float]] = {
    ("", "PersistentVolume"): 300.0,
    ("", "PersistentVolumeClaim"): 300.0,
    ("", "ResourceQuota"): 60.0,
    ("", "Secret"): 5.0,
}

# Kinds whose readiness a refresh looks at too.
_CHECKED_ON_READ: Final = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job"), ("", "Pod")}
    | {("", "Service"), ("networking.k8s.io", "Ingress")}
)


def rule_of(obj: Tree) -> Rule | None:
    """The rule for the object's kind that needs nothing but the object, if there is one."""
    gvk = gvk_of(obj)
    return _RULES.get((gvk.group, gvk.kind))


def limit_s(gvk: GroupVersionKind, limit: float) -> float:
    """The time limit for a kind."""
    return min(limit, _SHORT_LIMITS_S.get((gvk.group, gvk.kind), limit))


def checked_on_read(gvk: GroupVersionKind) -> bool:
    return (gvk.group, gvk.kind) in _CHECKED_ON_READ


def first_address(obj: Tree) -> Any:
    """The first load balancer address of a Service or Ingress, or None."""
    addresses = section(section(obj, "status"), "loadBalancer").get("ingress")
    return addresses[0] if isinstance(addresses, list) and addresses else None
