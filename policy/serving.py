"""Rules about serving: a model survives a node, a route leads to a pool, no client gets in without a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floor import stateful
from floor.metadata import DISPOSABLE, GROUPS_LABEL
from policy.model import Finding, Resource, SiteFacts
from policy.pods import gpu_workloads, pod_spec, pods_of_a_replica, template_of

# Kinds that a route leads to; it is the first where the route names none.
_BACKENDS = ("AIServiceBackend", "InferencePool")


def _models(resources: Sequence[Resource]) -> Iterator[Resource]:
    """Workloads with GPUs and more than one replica."""
    for label in dict.fromkeys(resource.label for resource, _ in gpu_workloads(resources)):
        resource = next(resource for resource in resources if resource.label == label)
        if int((resource.body.get("spec") or {}).get("replicas", 1)) > 1:
            yield resource


def disruption_budget(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001 - a rule's form
    budgets = [resource for resource in resources if resource.kind == "PodDisruptionBudget"]
    for model in _models(resources):
        over = [
            budget for budget in budgets if budget.namespace == model.namespace and _selects(budget, _pod_labels(model))
        ]
        if not over:
            yield Finding(
                resource=model.label,
                problem="no PodDisruptionBudget selects its replicas: a drain may take all of them at once",
                fix="declare one with maxUnavailable: 1 over the replicas' labels",
            )
        for budget in over:
            spec = budget.body.get("spec") or {}
            if str(spec.get("maxUnavailable", "")) == "0" or str(spec.get("minAvailable", "")) == "100%":
                yield Finding(
                    resource=budget.label,
                    problem="it lets no replica go, so no node can ever be drained",
                    fix="set maxUnavailable: 1",
                )
            gone, replicas = str(spec.get("maxUnavailable", "")), int((model.body.get("spec") or {})["replicas"])
            # Each pod that goes takes its group with it, whose others are out when the next one goes.
            if gone == "100%" or (gone.isdigit() and (int(gone) - 1) // pods_of_a_replica(model) + 1 >= replicas):
                yield Finding(
                    resource=budget.label,
                    problem=f"it lets all {replicas} replicas go at once",
                    fix=f"set maxUnavailable below {replicas}",
                )


def spread(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for model in _models(resources):
        spec = pod_spec(model)
        apart = (spec.get("affinity") or {}).get("podAntiAffinity")
        if not spec.get("topologySpreadConstraints") and not apart:
            yield Finding(
                resource=model.label,
                problem="its replicas may share one node, whose failure takes all of them",
                fix="set topologySpreadConstraints over kubernetes.io/hostname",
            )


def update_leaves_a_replica(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for model in _models(resources):
        spec = model.body.get("spec") or {}
        strategy = spec.get("strategy") or {}
        gone = str((strategy.get("rollingUpdate") or {}).get("maxUnavailable", "25%"))
        whole = gone == "100%" or (gone.isdigit() and int(gone) >= int(spec.get("replicas", 1)))
        if strategy.get("type") == "Recreate" or whole:
            yield Finding(
                resource=model.label,
                problem="an update stops all of its replicas before the first new one is ready",
                fix="use RollingUpdate with maxUnavailable: 1",
            )


def shared_volume(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    volumes = [resource for resource in resources if resource.kind == stateful.VOLUME.kind]
    of_nodes = _claims_of_nodes(resources)
    claims = {(volume.namespace, str(volume.body["metadata"].get("name"))): volume for volume in volumes}
    claims = {name: volume for name, volume in claims.items() if name not in of_nodes}
    for model in _models(resources):
        for volume in pod_spec(model).get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            claim = claims.get((model.namespace, str(name)))
            modes = ((claim.body.get("spec") or {}).get("accessModes") or ()) if claim else ("ReadWriteMany",)
            if claim and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                yield Finding(
                    resource=claim.label,
                    problem=f"{model.label} mounts it on several nodes, in mode {', '.join(modes) or '(none)'}",
                    fix="set accessModes: [ReadWriteMany]",
                )


def _claims_of_nodes(resources: Sequence[Resource]) -> set[tuple[str, str]]:
    """Claims on a folder of each node: every node mounts its own, whatever their mode, as no one attaches it."""
    specs = [resource.body.get("spec") or {} for resource in resources if resource.kind == "PersistentVolume"]
    taken = [spec.get("claimRef") or {} for spec in specs if spec.get("local")]
    return {(str(claim.get("namespace")), str(claim.get("name"))) for claim in taken}


def protect_stateful(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:
    for resource in resources:
        holder = stateful.holder(resource.type, resource.name)
        if holder and not (resource.protected or resource.retained or _may_go(resource, facts)):
            yield Finding(
                resource=resource.label,
                problem="its data goes with it when a name in the site's file changes",
                fix=f"declare it with protect=True, or state that its data may go: {holder.permission}",
            )


def _may_go(resource: Resource, facts: SiteFacts) -> bool:
    """Whether the site lets its data go: an object carries the permission, a command's is in the site alone."""
    if resource.name == stateful.STORAGE.name:
        settings = (resource.body.get("values") or {}).get("defaultSettings") or {}
        return settings.get("deletingConfirmationFlag") is True
    if resource.kind:
        return bool(((resource.body.get("metadata") or {}).get("annotations") or {}).get(DISPOSABLE) == "true")
    return (facts.pepper if resource.name == stateful.PEPPER.name else facts.machine_secrets) != "protected"


def gateway_authenticates(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    policies = [resource for resource in resources if resource.kind == "SecurityPolicy"]
    for gateway in (resource for resource in resources if resource.kind == "Gateway"):
        name = gateway.body["metadata"].get("name")
        if _leads_to_no_model(gateway, str(name), resources):
            continue
        over = [policy for policy in policies if policy.namespace == gateway.namespace and _targets(policy, str(name))]
        specs = [policy.body.get("spec") or {} for policy in over]
        if any(
            _asks_a_service(resource, str(name)) for resource in resources if resource.namespace == gateway.namespace
        ):
            continue
        if not any(spec.get("apiKeyAuth") or spec.get("jwt") or spec.get("oidc") for spec in specs):
            yield Finding(
                resource=gateway.label,
                problem="no SecurityPolicy asks its callers for a key, and no filter asks a service about them",
                fix="attach one SecurityPolicy with apiKeyAuth or jwt to the Gateway, or set callers.decided_by",
            )
        elif not any((spec.get("authorization") or {}).get("defaultAction") == "Deny" for spec in specs):
            yield Finding(
                resource=gateway.label,
                problem="any key may call every model: its SecurityPolicy does not deny by default",
                fix="set authorization.defaultAction: Deny and allow each tenant its models",
            )


def _leads_to_no_model(gateway: Resource, name: str, resources: Sequence[Resource]) -> bool:
    """Whether routes of its own namespace alone attach to it, and these lead to Services, as those of a portal."""
    listeners = (gateway.body.get("spec") or {}).get("listeners") or ()
    froms = {((item.get("allowedRoutes") or {}).get("namespaces") or {}).get("from", "Same") for item in listeners}
    attached = [
        resource
        for resource in resources
        if resource.kind.endswith("Route")
        and resource.namespace == gateway.namespace
        and any(parent.get("name") == name for parent in (resource.body.get("spec") or {}).get("parentRefs") or ())
    ]
    backends = [
        backend
        for route in attached
        for rule in route.body["spec"].get("rules") or ()
        for backend in rule.get("backendRefs") or ()
    ]
    of_services = all(route.kind == "HTTPRoute" for route in attached) and all(
        backend.get("kind", "Service") == "Service" for backend in backends
    )
    return froms == {"Same"} and bool(backends) and of_services


def _asks_a_service(resource: Resource, gateway: str) -> bool:
    """Whether it puts a filter into the Gateway's listener that lets no request pass without a service's answer."""
    spec = resource.body.get("spec") or {}
    if resource.kind != "EnvoyPatchPolicy" or (spec.get("targetRef") or {}).get("name") != gateway:
        return False
    for patch in spec.get("jsonPatches") or ():
        value = (patch.get("operation") or {}).get("value")
        settings = value.get("typed_config") or {} if isinstance(value, dict) else {}
        if str(settings.get("@type")).endswith(".ext_authz.v3.ExtAuthz") and not settings.get("failure_mode_allow"):
            return True
    return False


def route_timeouts(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    for route in (resource for resource in resources if resource.kind == "AIGatewayRoute"):
        for number, rule in enumerate((route.body.get("spec") or {}).get("rules") or ()):
            if not (rule.get("timeouts") or {}).get("request"):
                yield Finding(
                    resource=route.label,
                    problem=f"rule {number} has no request timeout, and the AI gateway's own cuts streams after 60 s",
                    fix="set timeouts.request to the longest time from request to last token",
                )


def route_leads_somewhere(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001
    backends = {
        (resource.kind, resource.namespace, str(resource.body["metadata"].get("name")))
        for resource in resources
        if resource.kind in _BACKENDS
    }
    for route in (resource for resource in resources if resource.kind == "AIGatewayRoute"):
        for rule in (route.body.get("spec") or {}).get("rules") or ():
            for backend in rule.get("backendRefs") or ():
                kind = str(backend.get("kind", _BACKENDS[0]))
                at = (str(backend.get("namespace", route.namespace)), str(backend.get("name")))
                if kind in _BACKENDS and (kind, *at) not in backends:
                    yield Finding(
                        resource=route.label,
                        problem=f"leads to {kind} {'/'.join(at)}, which the site does not declare",
                        fix="declare the model that the route names, or remove the route",
                    )


def _pod_labels(workload: Resource) -> Mapping[str, Any]:
    """As the pod has them that takes requests, with the one that its controller adds."""
    added = {GROUPS_LABEL: workload.body["metadata"].get("name")} if workload.kind == "LeaderWorkerSet" else {}
    return {**((template_of(workload).get("metadata") or {}).get("labels") or {}), **added}


def _selects(budget: Resource, labels: Mapping[str, Any]) -> bool:
    wanted = ((budget.body.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def _targets(policy: Resource, gateway: str) -> bool:
    spec = policy.body.get("spec") or {}
    targets = [*(spec.get("targetRefs") or ()), *([spec["targetRef"]] if spec.get("targetRef") else [])]
    return any(target.get("kind") == "Gateway" and target.get("name") == gateway for target in targets)
