"""Rules about boundaries: namespaces, permissions, and what leaves a sovereign site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from floor.model_hub import HUB
from policy.model import Finding, Resource, SiteFacts
from policy.pods import containers
from services.weights import variables

_ENFORCE = "pod-security.kubernetes.io/enforce"
# Ends of names that only the cluster resolves.
_INSIDE = (".svc", ".svc.cluster.local")


def namespace_security(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    for space in (resource for resource in resources if resource.kind == "Namespace"):
        meta = space.body["metadata"]
        level = (meta.get("labels") or {}).get(_ENFORCE)
        if level not in ("restricted", "baseline", "privileged"):
            yield Finding(
                resource=space.label,
                problem="sets no level of pod security, so any pod may run in it",
                fix=f"label it {_ENFORCE}: restricted (or baseline)",
            )
        elif level == "privileged" and meta.get("name") not in facts.privileged_namespaces:
            yield Finding(
                resource=space.label,
                problem="lets privileged pods run and is not among the namespaces that need them",
                fix=f"label it {_ENFORCE}: restricted, or list it under privileged_namespaces in the site's rules file",
            )


def namespace_denies_ingress(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001 - a rule's form
    denied = {
        resource.body["metadata"].get("namespace")
        for resource in resources
        if resource.kind == "NetworkPolicy"
        and resource.body["spec"].get("podSelector") == {}
        and "Ingress" in (resource.body["spec"].get("policyTypes") or ())
        and not resource.body["spec"].get("ingress")
    }
    for space in (resource for resource in resources if resource.kind == "Namespace"):
        if space.body["metadata"].get("name") not in denied:
            yield Finding(
                resource=space.label,
                problem="lets every pod of the cluster reach every pod in it",
                fix="declare a NetworkPolicy in it that selects all pods, names Ingress and allows nothing; "
                "then one for each client that must get in",
            )


def no_wildcard_permissions(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001 - a rule's form
    for role in (resource for resource in resources if resource.kind in ("Role", "ClusterRole")):
        for number, rule in enumerate(role.body.get("rules") or ()):
            wide = [key for key in ("apiGroups", "resources", "verbs") if "*" in (rule.get(key) or ())]
            if wide:
                yield Finding(
                    resource=role.label,
                    problem=f"rule {number} grants everything in {', '.join(wide)}",
                    fix="name the groups, resources and verbs that are used",
                )


def security_at_the_gateway(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001 - a rule's form
    for policy in (resource for resource in resources if resource.kind == "SecurityPolicy"):
        spec = policy.body.get("spec") or {}
        targets = [*(spec.get("targetRefs") or ()), *([spec["targetRef"]] if spec.get("targetRef") else [])]
        narrow = [ref for ref in targets if ref.get("kind") != "Gateway" or ref.get("sectionName")]
        if narrow or spec.get("targetSelectors"):
            names = ", ".join(f"{ref.get('kind')} {ref.get('name')}" for ref in narrow) or "what a selector finds"
            yield Finding(
                resource=policy.label,
                problem=f"is attached to {names}, where it takes the place of the Gateway's own policy, and keys are "
                "checked before a request's route is known",
                fix="attach it to the Gateway as a whole; allow tenants their models in authorization.rules",
            )


def sovereign_registries(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    if not facts.sovereign:
        return
    for resource in resources:
        images = [str(container.get("image", "")) for container in containers(resource)]
        sources = [image for image in images if not _mirrored(image, facts.mirrored)]
        if resource.type.startswith("kubernetes:helm.sh/"):
            sources += _chart_sources(resource)
        for source in sources:
            if not listed(source, facts.registries):
                yield Finding(
                    resource=resource.label,
                    problem=f"'{source}' is not in a registry of this sovereign site "
                    f"(allowed: {', '.join(facts.registries) or 'none is listed'})",
                    fix="mirror it (an image by cluster.machines.registries.mirrors with skip_fallback, a chart by "
                    "charts.mirror), and list the "
                    "mirror under registries in the site's rules file",
                )


def sovereign_egress(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    if not facts.sovereign:
        return
    for resource in resources:
        outside = _outside(resource)
        if outside:
            yield Finding(
                resource=resource.label,
                problem=f"leads out of this sovereign site, to {', '.join(outside)}",
                fix="serve it inside, or drop it",
            )
    for resource in resources:
        for container in containers(resource):
            source = _source_of_weights(container)
            if source is not None and not _inside(source, facts.registries):
                called = "the hub" if source == HUB else source
                yield Finding(
                    resource=resource.label,
                    problem=f"container {container.get('name')} may download weights from {called}",
                    fix="set storage.weights.source: volume and put the weights there beforehand, or source: mirror, "
                    "bucket or oci with a server of the site's own, whose host is in the rules file under registries",
                )


def _source_of_weights(container: Mapping[str, Any]) -> str | None:
    """Where a container may download weights from; None where it may not."""
    environment = {str(variable.get("name")): str(variable.get("value", "")) for variable in container.get("env") or ()}
    may = "HF_HOME" in environment and environment.get("HF_HUB_OFFLINE") != "1"
    named = environment.get(variables.BUCKET_ADDRESS) or environment.get(variables.REGISTRY_ADDRESS)
    return named or environment.get(variables.HUB_ADDRESS, HUB if may else None)


def _outside(resource: Resource) -> list[str]:
    spec = resource.body.get("spec") or {}
    if resource.kind == "Service" and spec.get("type") == "ExternalName":
        return [str(spec.get("externalName"))]
    if resource.kind == "Backend":
        names = [str((end.get("fqdn") or {}).get("hostname", "")) for end in spec.get("endpoints") or ()]
        return [name for name in names if name and not name.endswith(_INSIDE)]
    return []


def _chart_sources(resource: Resource) -> list[str]:
    """Where a chart is fetched from; nowhere, for one that lies on the machine that runs `up`."""
    chart = str(resource.body.get("chart", ""))
    if chart.startswith(("./", "../", "/")):
        return []
    repository = (resource.body.get("repositoryOpts") or {}).get("repo")
    return [f"{str(repository).rstrip('/')}/{chart}" if repository else chart]


def _mirrored(image: str, mirrored: Sequence[str]) -> bool:
    return "*" in mirrored or image.partition("/")[0] in mirrored


def _inside(address: str, registries: Sequence[str]) -> bool:
    return (urlsplit(address).hostname or "").endswith(_INSIDE) or listed(address, registries)


def listed(source: str, registries: Sequence[str]) -> bool:
    """Whether an image, chart or address is at one of these hosts (and paths)."""
    bare = re.sub(r"^[a-z]+://", "", source)
    return any(bare == registry or bare.startswith(f"{registry.rstrip('/')}/") for registry in registries)
