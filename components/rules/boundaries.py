"""Rules about boundaries: namespaces, permissions, and what leaves a sovereign site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from components.rules.model import Finding, Resource, SiteFacts
from components.rules.pods import containers, gpu_workloads

_ENFORCE = "pod-security.kubernetes.io/enforce"
_INSIDE = (".svc", ".svc.cluster.local")


def namespace_security(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    for space in (one for one in resources if one.kind == "Namespace"):
        meta = space.body["metadata"]
        level = (meta.get("labels") or {}).get(_ENFORCE)
        if level not in ("restricted", "baseline", "privileged"):
            yield Finding(
                resource=space.label,
                problem="says nothing of pod security, so any pod may run in it",
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
        one.body["metadata"].get("namespace")
        for one in resources
        if one.kind == "NetworkPolicy"
        and one.body["spec"].get("podSelector") == {}
        and "Ingress" in (one.body["spec"].get("policyTypes") or ())
        and not one.body["spec"].get("ingress")
    }
    for space in (one for one in resources if one.kind == "Namespace"):
        if space.body["metadata"].get("name") not in denied:
            yield Finding(
                resource=space.label,
                problem="lets every pod of the cluster reach every pod in it",
                fix="declare a NetworkPolicy in it that selects all pods, names Ingress and allows nothing; "
                "then one for each client that must get in",
            )


def no_wildcard_permissions(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001 - a rule's form
    for role in (one for one in resources if one.kind in ("Role", "ClusterRole")):
        for number, rule in enumerate(role.body.get("rules") or ()):
            wide = [key for key in ("apiGroups", "resources", "verbs") if "*" in (rule.get(key) or ())]
            if wide:
                yield Finding(
                    resource=role.label,
                    problem=f"rule {number} grants everything in {', '.join(wide)}",
                    fix="name the groups, resources and verbs that are used",
                )


def sovereign_registries(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    if not facts.sovereign:
        return
    for resource in resources:
        sources = [str(container.get("image", "")) for container in containers(resource)]
        if resource.type.startswith("kubernetes:helm.sh/"):
            sources.append(str(resource.body.get("chart", "")))
        for source in sources:
            if not _listed(source, facts.registries):
                yield Finding(
                    resource=resource.label,
                    problem=f"'{source}' is not in a registry of this sovereign site "
                    f"(allowed: {', '.join(facts.registries) or 'none is listed'})",
                    fix="mirror it and name the mirror in stacks/versions.yaml",
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
    for resource, container in gpu_workloads(resources):
        environment = {str(one.get("name")): str(one.get("value", "")) for one in container.get("env") or ()}
        if "HF_HOME" in environment and environment.get("HF_HUB_OFFLINE") != "1":
            yield Finding(
                resource=resource.label,
                problem=f"container {container.get('name')} may download weights from the hub",
                fix="put the weights on the volume beforehand and set HF_HUB_OFFLINE=1",
            )


def _outside(resource: Resource) -> list[str]:
    spec = resource.body.get("spec") or {}
    if resource.kind == "Service" and spec.get("type") == "ExternalName":
        return [str(spec.get("externalName"))]
    if resource.kind == "Backend":
        names = [str((end.get("fqdn") or {}).get("hostname", "")) for end in spec.get("endpoints") or ()]
        return [name for name in names if name and not name.endswith(_INSIDE)]
    return []


def _listed(source: str, registries: Sequence[str]) -> bool:
    bare = source.removeprefix("oci://")
    return any(bare == registry or bare.startswith(f"{registry.rstrip('/')}/") for registry in registries)
