"""Wires a site: the parts that it consists of, and what each of them needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi

from components.addons.chart_lock import check_lock
from components.addons.crd_bundle import CrdBundle, CrdBundleArgs, read_bundle
from components.addons.rdma_devices import resource_name
from components.gateway.envoy_names import door_port
from components.gateway.front_door import FrontDoor, FrontDoorArgs, FrontDoorHandle
from components.gateway.gateway import ROUTES_ALLOWED, Gateway, GatewayArgs, GatewayHandle, listener_name
from components.gateway.gateway_controllers import ENVOY_NAMESPACE, GatewayControllers, GatewayControllersArgs
from components.gateway.gateway_protection import GatewayProtection, GatewayProtectionArgs
from components.gateway.pickers import Picker
from components.gateway.traffic_policies import target_gateway
from components.machines.machine_commands import LIMITS, Limits
from components.models.engine_images import EngineImages
from components.models.inference_pool import picker_authority
from components.models.model import Model, ModelArgs
from components.models.model_server import programs_of
from components.models.pod_programs import PodPrograms
from components.models.scaling import Scaler
from components.monitoring.monitoring import scrapers
from components.namespace import Namespace, NamespaceHandle
from components.network_policies import peer
from components.objects import field_manager
from components.tenants.gatekeeper import GATEKEEPER_PODS
from components.tenants.ledger import LedgerHandle
from components.tenants.limits import rate_limit
from components.tenants.portal import Portal, PortalArgs
from floor import namespaces
from floor.namespaces import PodSecurity
from floor.revision_ids import RevisionId
from stacks.plan.charts import optional_parts
from stacks.plan.dns import gateway_records, portal_records
from stacks.plan.models import MODELS_NAMESPACE
from stacks.plan.portal import portal_catalogue
from stacks.plan.site_plan import SitePlan
from stacks.program import reports
from stacks.program.addons import addon_parts, charts_of, check_values, filled
from stacks.program.cluster_access import bundle_command, cluster_access
from stacks.program.monitoring import declare_monitoring, prometheus_of
from stacks.program.parts import PartDone, PartStep, SitePart, Wiring, declare_parts
from stacks.program.remote_secrets import SecretSource
from stacks.program.tenants import (
    Tenants,
    declare_counters,
    declare_database,
    declare_ledger,
    declare_tenants,
    limit_service_of,
    ranks_charged,
)

GATEWAY_NAMESPACE = namespaces.GATEWAY
# What everything above the gateways' controllers is declared after.
_GATEWAYS = ("crds", "gateway-controllers")
# It opens only when keys are checked, every tenant's priority is known, and its requests are counted.
_BEFORE_THE_LISTENER = (
    *("tenants", "limit-counters", "ledger", "front-door", "required-decision"),
    *("addresses", "certificates", "certificate-secrets"),
)


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What a stack exports."""

    endpoint: pulumi.Output[str]
    models: list[str]
    keys: pulumi.Output[dict[str, str]]
    """Client id -> API key, secret."""
    kubeconfig: pulumi.Output[str] | None = None
    """An administrator's access to the cluster that this program made, secret; None for an existing one."""
    talosconfig: pulumi.Output[str] | None = None
    """An administrator's access to its machines, secret."""


def declare_platform(plan: SitePlan, limits: Limits = LIMITS, models_namespace: str = MODELS_NAMESPACE) -> Platform:
    """Declare every resource of the site.

    limits: how long the machines' commands may take. models_namespace: where models and their pickers run.
    """
    site, versions = plan.site, plan.versions
    reports.show(plan)
    # Files are read before anything is declared, so that a missing one leaves everything as it was.
    fetch = bundle_command(site.name)
    pinned = versions.crds_with(optional_parts(site))
    by_program = site.crds.owner == "program"
    bundle = read_bundle(site.crds.folder, pinned, versions.crd_versions, fetch) if by_program else None
    charts = charts_of(plan)
    check_values(plan, charts)
    check_lock([chart.chart for chart in charts.values()], Path.cwd(), f"{fetch} --charts")
    cluster = cluster_access(plan, limits)
    wiring = Wiring(
        plan=plan,
        charts=charts,
        bundle=bundle,
        cluster=cluster,
        models_namespace=models_namespace,
        scrapers=scrapers(site.monitoring),
        opts=pulumi.ResourceOptions(providers=[cluster.provider]),
    )
    done = declare_parts([*PARTS, *addon_parts(plan)], wiring)
    return Platform(
        endpoint=done.handle("gateway", GatewayHandle).endpoint,
        models=sorted(site.models),
        keys=pulumi.Output.all(**done.handle("tenants", Tenants).keys),
        kubeconfig=cluster.kubeconfig,
        talosconfig=cluster.talosconfig,
    )


def _crds(step: PartStep) -> PartDone:
    if step.on.bundle is None:
        return PartDone()
    args = CrdBundleArgs(
        files=step.on.bundle,
        kubeconfig=step.on.cluster.kubeconfig,
        kubeconfig_file=str(step.on.plan.site.cluster.kubeconfig or ""),
        needs=step.on.cluster.ready,
    )
    return PartDone(ready=CrdBundle("crds", args, step.on.opts).handle.ready)


def _gateway_controllers(step: PartStep) -> PartDone:
    site = step.on.plan.site
    if site.gateway.controllers != "chart":
        return PartDone()
    args = GatewayControllersArgs(
        envoy_gateway=step.on.charts["envoy_gateway"],
        ai_gateway=step.on.charts["ai_gateway"],
        webhook_certificate_rotation=site.gateway.webhook_certificate_rotation,
        needs=step.ready(),
        dns_domain=step.on.plan.dns_domain,
        limit_service=limit_service_of(step.on.plan),
        scrapers=step.on.scrapers,
        recovered=site.recovered,
    )
    return PartDone(ready=GatewayControllers("gateway-controllers", args, step.on.opts).handle.ready)


def _gateway_namespace(step: PartStep) -> PartDone:
    handle = Namespace(GATEWAY_NAMESPACE, pod_security="restricted", opts=step.on.opts).handle
    return PartDone(ready=[handle.ready], handle=handle)


def _models_namespace(step: PartStep) -> PartDone:
    # What RDMA cards read and write stays in memory by a capability that `baseline` refuses.
    level: PodSecurity = "privileged" if step.on.plan.site.spans_nodes else "baseline"
    handle = Namespace(step.on.models_namespace, pod_security=level, labels=ROUTES_ALLOWED, opts=step.on.opts).handle
    return PartDone(ready=[handle.ready], handle=handle)


def _tenants(step: PartStep) -> PartDone:
    front, space = (step.handle(name, NamespaceHandle) for name in ("gateway-namespace", "models-namespace"))
    needs, filled_secrets = step.ready(*_GATEWAYS), step.ready("certificate-secrets", "database")
    ledger = step.handle("ledger", LedgerHandle).reading if step.on.plan.site.has_ledger else None
    tenants = declare_tenants(
        step.on.plan, front, space, needs, filled_secrets, step.on.scrapers, step.on.opts, ledger=ledger
    )
    return PartDone(ready=[*tenants.checked, *tenants.ranked], handle=tenants)


def _limit_counters(step: PartStep) -> PartDone:
    front = step.handle("gateway-namespace", NamespaceHandle)
    return PartDone(ready=declare_counters(step.on.plan, front, step.ready("hardware"), step.on.opts))


def _database(step: PartStep) -> PartDone:
    front, filled_keys = step.handle("gateway-namespace", NamespaceHandle), step.handle("secret-store", SecretSource)
    bodies = filled_keys.bodies(namespaces.DATABASE)
    return PartDone(ready=declare_database(step.on.plan, front, step.on.scrapers, bodies, step.ready(), step.on.opts))


def _ledger(step: PartStep) -> PartDone:
    front = step.handle("gateway-namespace", NamespaceHandle)
    needs = step.ready("gateway-controllers", "certificate-secrets", "database")
    ledger = declare_ledger(step.on.plan, front, needs, step.on.opts)
    return PartDone(ready=ledger.ready, handle=ledger) if ledger else PartDone()


def _front_door(step: PartStep) -> PartDone:
    site = step.on.plan.site
    tenants = step.handle("tenants", Tenants)
    args = FrontDoorArgs(
        model_lists=tenants.model_lists,
        names=tenants.names,
        adapters=tenants.adapters,
        pickers=[
            Picker(
                pool=name,
                namespace=step.on.models_namespace,
                authority=picker_authority(name, step.on.models_namespace),
                parallel=site.gateway.max_parallel_streams,
                zero=revision.server.scaling.zero if revision.server.scaling else None,
            )
            for name, revision in sorted(step.on.plan.named.items())
        ],
        namespace=step.handle("gateway-namespace", NamespaceHandle),
        target=target_gateway(),
        listener=listener_name(GATEWAY_NAMESPACE),
        port=door_port(site.gateway.port),
        tls=bool(site.gateway.certificate_secret),
        gatekeeper=tenants.gatekeeper,
        decided=step.on.plan.site.callers.decided_by == "gatekeeper",
        shared=any(revision.spec.pool.queues for revision in step.on.plan.revisions),
        metered=site.has_ledger,
        revisions=step.on.plan.tenants.chooses_revisions,
        prompts=site.has_directory,
        overflows=bool(step.on.plan.tenants.overflows),
        ranks_charged=ranks_charged(step.on.plan),
        # Who checks keys next is there before the filters ask it.
        needs=[*step.ready(*_GATEWAYS), *(tenants.checked if tenants.gatekeeper else [])],
    )
    handle = FrontDoor("front-door", args, step.on.opts).handle
    return PartDone(ready=handle.ready, handle=handle)


def _required_decision(step: PartStep) -> PartDone:
    """An earlier check of keys goes only when the door's filters ask the next one."""
    return PartDone(ready=step.handle("tenants", Tenants).access.require_decision(step.ready("front-door")))


def _gateway(step: PartStep) -> PartDone:
    plan = step.on.plan
    args = GatewayArgs(
        spec=plan.site.gateway,
        namespace=step.handle("gateway-namespace", NamespaceHandle),
        needs=step.ready(*_GATEWAYS, *_BEFORE_THE_LISTENER),
        drain_s=plan.longest_stream_s,
        body_kib=plan.body_kib,
        proxy_namespace=ENVOY_NAMESPACE if plan.site.gateway.controllers == "chart" else None,
        proxy_image=plan.proxy_image,
        names=gateway_records(plan.site),
        rate_limit=rate_limit(plan.tenants.limits) if plan.tenants.limits else None,
        decided=plan.tenants.by_gatekeeper,
        overflows=bool(plan.tenants.overflows),
        budgeted=bool(plan.tenants.budgets),
        paged=any(cache.room for cache in plan.tenants.caches.values()),
        suspends=plan.site.has_directory,
        starts=plan.site.starts_on_request,
        shipping=step.handle("ledger", LedgerHandle).shipping if plan.site.has_ledger else None,
        scrapers=step.on.scrapers,
        certificates=plan.site.certificates,
    )
    handle = Gateway("gateway", args, step.on.opts).handle
    return PartDone(ready=[handle.ready], handle=handle)


def _gateway_protection(step: PartStep) -> PartDone:
    gateway = step.handle("gateway", GatewayHandle)
    args = GatewayProtectionArgs(
        gateway=gateway.name,
        gateway_namespace=gateway.namespace,
        models_namespace=step.on.models_namespace,
        manager=field_manager(),
        needs=[
            gateway.ready,
            *step.handle("tenants", Tenants).checked,
            *step.ready("front-door", "required-decision"),
        ],
    )
    GatewayProtection("gateway-protection", args, step.on.opts)
    return PartDone()


def _portal(step: PartStep) -> PartDone:
    plan = step.on.plan
    if plan.site.portal is None:
        return PartDone()
    front = step.handle("gateway-namespace", NamespaceHandle)
    args = PortalArgs(
        spec=plan.site.portal,
        models=plan.site.gateway,
        catalogue=portal_catalogue(plan),
        image=plan.versions.images.portal,
        namespace=front,
        endpoint=step.handle("gateway", GatewayHandle).endpoint,
        ledger=step.handle("ledger", LedgerHandle).reading if plan.site.has_ledger else None,
        proxy_namespace=ENVOY_NAMESPACE if plan.site.gateway.controllers == "chart" else None,
        proxy_image=plan.proxy_image,
        trusted=plan.site.gateway.certificate_secret if plan.site.certificates.has_own_ca else None,
        names=portal_records(plan.site),
        scrapers=step.on.scrapers,
        needs=step.ready(*_GATEWAYS, "gateway", "tenants", "certificate-secrets"),
    )
    Portal("portal", args, step.on.opts)
    return PartDone()


def _pod_programs(step: PartStep) -> PartDone:
    used = [own for serving in step.on.plan.named.values() for own in programs_of(serving.engine, serving.weights)]
    space = step.handle("models-namespace", NamespaceHandle)
    return PartDone(ready=PodPrograms("pod-programs", programs=used, namespace=space, opts=step.on.opts).handle.ready)


def _engine_images(step: PartStep) -> PartDone:
    plan = step.on.plan
    families = {serving.spec.server.gpu_family for serving in plan.revisions if serving.spec.server.engine == "vllm"}
    if plan.site.images.engine_ahead and families:
        space, image = step.handle("models-namespace", NamespaceHandle), plan.versions.images.vllm
        EngineImages("engine-images", image=image, gpu_families=sorted(families), namespace=space, opts=step.on.opts)
    return PartDone()


def _models(step: PartStep) -> PartDone:
    storage = step.on.plan.site.storage
    scaler = Scaler(prometheus=prometheus_of(step.on.plan.site), ready=step.ready("autoscaling"))
    pickers_asked = step.handle("front-door", FrontDoorHandle).pickers
    made: dict[RevisionId, Model] = {}
    for name, serving in step.on.plan.named.items():
        filled = step.on.plan.filled_by(serving)
        args = ModelArgs(
            model=serving.model,
            spec=serving.spec,
            plan=serving.server,
            picker=serving.picker,
            parallel_requests=serving.parallel_requests,
            engine=serving.engine,
            ranks=serving.ranks,
            namespace=step.handle("models-namespace", NamespaceHandle),
            place=storage.weights.place,
            storage_class=storage.storage_class,
            hardware=step.ready("hardware"),
            weights=filled.weights,
            filled=None if filled is serving else made[filled.id].filled,
            programs=step.ready("pod-programs"),
            token=step.ready("weights-token"),
            volume=storage.volumes,
            picker_image=step.on.plan.versions.images.endpoint_picker,
            picker_asked=pickers_asked[name],
            scaler=scaler,
            rdma=resource_name(step.on.plan.site.cluster.rdma_devices),
            groups=step.ready("groups"),
            gateway=step.handle("gateway", GatewayHandle),
            scrapers=step.on.scrapers,
            followers=[peer(GATEKEEPER_PODS, GATEWAY_NAMESPACE)] if name in step.on.plan.tenants.filling else [],
            needs=step.ready(*_GATEWAYS),
        )
        made[serving.id] = Model(name, args, step.on.opts)
    for revision, model in made.items():
        model.prune([other for id_, other in made.items() if id_.group and id_.model == revision.name])
    return PartDone()


def _monitoring(step: PartStep) -> PartDone:
    filled = step.handle("secret-store", SecretSource).bodies(namespaces.MONITORING)
    spaces = (step.on.models_namespace, GATEWAY_NAMESPACE)
    ready = declare_monitoring(step.on.plan, *spaces, step.ready(), step.on.opts, filled, step.on.cluster.ends)
    return PartDone(ready=ready)


_SPACES = ("gateway-namespace", "models-namespace")
# With those of the site's addons: `addons.py` has hardware, addresses, certificates, backups and the store of secrets.
PARTS = (
    SitePart("crds", _crds),
    SitePart("gateway-controllers", _gateway_controllers, ("crds",)),
    SitePart("gateway-namespace", _gateway_namespace),
    SitePart("models-namespace", _models_namespace),
    filled("certificate-secrets", GATEWAY_NAMESPACE, "gateway-namespace"),
    filled("weights-token", None, "models-namespace"),
    SitePart("tenants", _tenants, (*_GATEWAYS, *_SPACES, "certificate-secrets", "database", "ledger")),
    SitePart("limit-counters", _limit_counters, ("gateway-namespace", "hardware")),
    SitePart("database", _database, ("gateway-namespace", "secret-store", "hardware", "databases")),
    SitePart("ledger", _ledger, ("gateway-controllers", "gateway-namespace", "certificate-secrets", "database")),
    SitePart("front-door", _front_door, (*_GATEWAYS, "tenants", "gateway-namespace")),
    SitePart("required-decision", _required_decision, ("tenants", "front-door")),
    SitePart("gateway", _gateway, (*_GATEWAYS, "gateway-namespace", *_BEFORE_THE_LISTENER)),
    SitePart("gateway-protection", _gateway_protection, ("gateway", "tenants", "front-door", "required-decision")),
    SitePart(
        "portal", _portal, (*_GATEWAYS, "ledger", "gateway", "tenants", "gateway-namespace", "certificate-secrets")
    ),
    SitePart("pod-programs", _pod_programs, ("models-namespace",)),
    SitePart("engine-images", _engine_images, ("models-namespace", "hardware")),
    SitePart(
        "models",
        _models,
        (
            *_GATEWAYS,
            "models-namespace",
            "hardware",
            "weights-token",
            "pod-programs",
            "front-door",
            "gateway",
            "autoscaling",
            "groups",
        ),
    ),
    SitePart(
        "monitoring",
        _monitoring,
        (*_GATEWAYS, *_SPACES, "hardware", "certificates", "secret-store", "etcd-backup", "autoscaling"),
    ),
)
