"""Rules about what runs: images, resources, probes, what a pod may reach of its host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floor import gpu_nodes
from policy.model import HIDDEN, Finding, Resource, SiteFacts

_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "Pod", "CronJob", "LeaderWorkerSet")
# Memory for RDMA cards is not swapped, and not theirs alone: what groups of pods have, and no other workload.
_OF_GROUPS = ("LeaderWorkerSet", "IPC_LOCK")
# What the Prometheus operator makes pods of: it has the image and resources of their main container itself.
_OPERATED = ("Prometheus", "Alertmanager")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
# A release: at least two numbers, with an optional v and suffix. `latest`, `main`, `24` and commit-less names are none.
_RELEASE = re.compile(r":v?\d+\.\d+[0-9A-Za-z._-]*$")
_SECRET_NAME = re.compile(r"(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|PRIVATE_?KEY|CREDENTIAL)S?$", re.IGNORECASE)
# Not every "token" is a secret here: `--prefill-time-per-token` is a time.
_SECRET_FLAG = re.compile(
    r"^--?([a-z0-9-]*(password|secret)|([a-z0-9-]+-)?(auth|access|api|bearer|hf|hub)-(token|key))=(?!\$)\S+",
    re.IGNORECASE,
)


def template_of(resource: Resource) -> Mapping[str, Any]:
    """Of the pods that a workload makes, of a group the one that leads; empty for everything else."""
    if resource.kind not in _WORKLOADS:
        return {}
    spec: Any = resource.body.get("spec") or {}
    if resource.kind == "Pod":
        return resource.body
    if resource.kind == "CronJob":
        spec = ((spec.get("jobTemplate") or {}).get("spec")) or {}
    if resource.kind == "LeaderWorkerSet":
        spec = {"template": (spec.get("leaderWorkerTemplate") or {}).get("leaderTemplate")}
    return spec.get("template") or {}


def pod_spec(resource: Resource) -> Mapping[str, Any]:
    """The same of the pod itself."""
    return template_of(resource).get("spec") or {}


def pods_of_a_replica(workload: Resource) -> int:
    """Pods that come and go together."""
    spec: Any = workload.body.get("spec") or {}
    return int((spec.get("leaderWorkerTemplate") or {}).get("size", 1))


def containers(resource: Resource) -> list[Mapping[str, Any]]:
    """All containers of a workload's pod, those that run first included; of an operator's, the one that it states."""
    if resource.kind in _OPERATED:
        stated: Any = resource.body.get("spec") or {}
        return [{"name": resource.kind.lower(), **{key: stated.get(key) for key in ("image", "resources")}}]
    spec = pod_spec(resource)
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def asks(container: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """`requests` or `limits` of a container."""
    return (container.get("resources") or {}).get(side) or {}


def gpu_workloads(resources: Sequence[Resource]) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    """Each container that asks for a GPU, with its workload."""
    for resource in resources:
        for container in containers(resource):
            if gpu_resources(container):
                yield resource, container


def gpu_resources(container: Mapping[str, Any]) -> list[str]:
    """Resources of GPUs, or of slices of one, that a container asks for."""
    return sorted(filter(gpu_nodes.is_resource, {**asks(container, "limits"), **asks(container, "requests")}))


def image_pinned(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001 - a rule's form
    for resource in resources:
        for container in containers(resource):
            image = str(container.get("image", ""))
            if not (_DIGEST.search(image) or _RELEASE.search(image)):
                yield Finding(
                    resource=resource.label,
                    problem=f"container {container.get('name')} runs '{image}', which is no exact version",
                    fix="name a release tag (v1.2.3) or a digest (@sha256:...) in stacks/facts/versions.yaml",
                )


def image_locked(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    if facts.locked_images is None:
        return
    for resource in resources:
        for container in containers(resource):
            image = str(container.get("image", ""))
            if image not in facts.locked_images:
                yield Finding(
                    resource=resource.label,
                    problem=f"container {container.get('name')} runs '{image}', which is not in images.lock",
                    fix=f"sitectl bundle lock {facts.name}, on a machine that reaches the registries; then name the "
                    "image as the lock does, by tag and digest",
                )


def gpu_limits(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for resource, container in gpu_workloads(resources):
        for name in gpu_resources(container):
            limit, request = (asks(container, kind).get(name) for kind in ("limits", "requests"))
            if limit is None or (request is not None and str(request) != str(limit)):
                yield Finding(
                    resource=resource.label,
                    problem=f"container {container.get('name')} requests {request} GPUs and is limited to {limit}",
                    fix=f"give {name} the same count in limits and requests; GPUs cannot be overcommitted",
                )


def requests_set(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for resource in resources:
        for container in containers(resource):
            if not asks(container, "requests"):
                yield Finding(
                    resource=resource.label,
                    problem=f"container {container.get('name')} requests nothing, so it is the first to be evicted",
                    fix="set resources.requests of cpu and memory",
                )


def probes_fit(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    """The startup probe must outlast the predicted load, or each replica is killed while it loads, again and again."""
    for resource, container in gpu_workloads(resources):
        missing = [name for name in ("startupProbe", "readinessProbe", "livenessProbe") if not container.get(name)]
        if missing:
            yield Finding(
                resource=resource.label,
                problem=f"container {container.get('name')} has no {', '.join(missing)}",
                fix="a model server needs all three: loading, ready and alive are different questions",
            )
            continue
        budget_s = startup_budget_s(container)
        load_s = facts.load_s.get(_model(resource), 0.0)
        if budget_s < load_s:
            yield Finding(
                resource=resource.label,
                problem=f"its startup probe gives up after {budget_s} s, and getting the weights takes {load_s:.0f} s",
                fix="raise startupProbe.failureThreshold, or storage.read_bytes_per_s and "
                "storage.shared_read_bytes_per_s if they are faster (storage.weights.node_read_bytes_per_s with "
                "place: nodes)",
            )


def startup_budget_s(container: Mapping[str, Any]) -> int:
    """Longest start that the startup probe lets pass; Kubernetes' defaults where it sets nothing."""
    probe = container.get("startupProbe") or {}
    delay_s = int(probe.get("initialDelaySeconds", 0))
    return delay_s + int(probe.get("periodSeconds", 10)) * int(probe.get("failureThreshold", 3))


def grace_outlasts_prestop(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for resource in resources:
        spec = pod_spec(resource)
        grace_s = int(spec.get("terminationGracePeriodSeconds", 30))
        for container in containers(resource):
            sleep = ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
            hold_s = int(sleep.get("seconds", 0))
            if hold_s and hold_s >= grace_s:
                yield Finding(
                    resource=resource.label,
                    problem=f"its preStop sleeps {hold_s} s of a grace period of {grace_s} s: streams are cut",
                    fix="raise terminationGracePeriodSeconds above preStop plus the longest stream",
                )


def no_host_access(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    for resource in resources:
        if resource.label in facts.host_access:
            continue
        spec = pod_spec(resource)
        taken = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
        taken += [
            f"hostPath {volume['hostPath'].get('path')}"
            for volume in spec.get("volumes") or ()
            if volume.get("hostPath")
        ]
        taken += _folders_of_hosts(resource)
        for container in containers(resource):
            context = container.get("securityContext") or {}
            if context.get("privileged"):
                taken.append(f"privileged container {container.get('name')}")
            added = (context.get("capabilities") or {}).get("add") or ()
            taken += [f"capability {name}" for name in added if (resource.kind, name) != _OF_GROUPS]
        if taken:
            yield Finding(
                resource=resource.label,
                problem=f"reaches into its host: {', '.join(taken)}",
                fix=f"do without, or list '{resource.label}' under host_access in the site's rules file",
            )


def _folders_of_hosts(resource: Resource) -> list[str]:
    """What of its host a volume gives to pods; nothing of a local one that a single claim may take."""
    spec = resource.body.get("spec") or {} if resource.kind == "PersistentVolume" else {}
    taken = [f"hostPath {spec['hostPath'].get('path')}"] if spec.get("hostPath") else []
    if spec.get("local") and not spec.get("claimRef"):
        taken.append(f"folder {spec['local'].get('path')} for any claim that asks for one")
    return taken


def service_account_token(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    """A pod with no account of its own has no business with the API, and its token is one that a thief can use."""
    for resource in resources:
        spec = pod_spec(resource)
        own = spec.get("serviceAccountName") not in (None, "", "default")
        if spec and not own and spec.get("automountServiceAccountToken") is not False:
            yield Finding(
                resource=resource.label,
                problem="mounts a token of the namespace's default service account",
                fix="set automountServiceAccountToken: false, or give it a service account with what it needs",
            )


def no_plaintext_secret(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for resource in resources:
        if resource.kind == "Secret":
            for section in ("data", "stringData"):
                values = resource.body.get(section) or {}
                shown = sorted(key for key, value in values.items() if value != HIDDEN) if values != HIDDEN else []
                if shown:
                    yield Finding(
                        resource=resource.label,
                        problem=f"{section} holds {', '.join(shown)} in plain text, in the state and in every preview",
                        fix="wrap the value with pulumi.Output.secret, or take it from a secret output",
                    )
        for container in containers(resource):
            named = [
                str(variable.get("name"))
                for variable in container.get("env") or ()
                if _SECRET_NAME.search(str(variable.get("name", "")))
                and variable.get("value") not in (None, "", HIDDEN)
            ]
            flags = [str(flag).partition("=")[0] for flag in _words(container) if _SECRET_FLAG.match(str(flag))]
            if named or flags:
                yield Finding(
                    resource=resource.label,
                    problem=f"container {container.get('name')} is given {', '.join(named + flags)} in plain text",
                    fix="put the value into a Secret and refer to it with valueFrom.secretKeyRef",
                )


def _words(container: Mapping[str, Any]) -> list[Any]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _model(resource: Resource) -> str:
    labels = (resource.body.get("metadata") or {}).get("labels") or {}
    return str(labels.get("app.kubernetes.io/instance", ""))
