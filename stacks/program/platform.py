"""Wires a site: CRDs, controllers, front door, tenants, tiers, models, each after what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi

from components.addons.chart_lock import check_lock
from components.addons.crd_bundle import CrdBundle, CrdBundleArgs, read_bundle
from components.gateway.envoy_names import door_port
from components.gateway.front_door import FrontDoor, FrontDoorArgs
from components.gateway.gateway import ROUTES_ALLOWED, Gateway, GatewayArgs, listener_name
from components.gateway.gateway_controllers import ENVOY_NAMESPACE, GatewayControllers, GatewayControllersArgs
from components.gateway.gateway_protection import GatewayProtection, GatewayProtectionArgs
from components.gateway.pickers import Picker
from components.gateway.traffic_policies import target_gateway
from components.machines.machine_commands import LIMITS, Limits
from components.models.inference_pool import picker_authority
from components.models.model import Model, ModelArgs
from components.models.model_server import programs_of
from components.models.pod_programs import PodPrograms
from components.monitoring.monitoring import scrapers
from components.namespace import Namespace
from components.objects import field_manager
from components.tenants.limits import rate_limit
from floor import namespaces
from stacks.plan.models import MODELS_NAMESPACE
from stacks.plan.optional_parts import optional_parts
from stacks.plan.site_plan import SitePlan
from stacks.program import reports
from stacks.program.addons import charts_of, check_values, declare_addons
from stacks.program.cluster_access import bundle_command, cluster_access
from stacks.program.monitoring import declare_monitoring
from stacks.program.tenants import declare_counters, declare_tenants, limit_service_of

GATEWAY_NAMESPACE = namespaces.GATEWAY


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
    top = pulumi.ResourceOptions(providers=[cluster.provider])
    measured_by = scrapers(site.monitoring)

    definitions: list[pulumi.Resource] = []
    if bundle is not None:
        definitions = CrdBundle(
            "crds",
            CrdBundleArgs(
                files=bundle,
                kubeconfig=cluster.kubeconfig,
                kubeconfig_file=str(site.cluster.kubeconfig or ""),
                needs=cluster.ready,
            ),
            top,
        ).handle.ready
    controllers: list[pulumi.Resource] = []
    if site.gateway.controllers == "chart":
        args = GatewayControllersArgs(
            envoy_gateway=charts["envoy_gateway"],
            ai_gateway=charts["ai_gateway"],
            webhook_certificate_rotation=site.gateway.webhook_certificate_rotation,
            needs=definitions,
            dns_domain=plan.dns_domain,
            limit_service=limit_service_of(plan),
            scrapers=measured_by,
            recovered=site.recovered,
        )
        controllers = GatewayControllers("gateway-controllers", args, top).handle.ready

    addons = declare_addons(plan, charts, definitions, top)

    front = Namespace(GATEWAY_NAMESPACE, pod_security="restricted", opts=top).handle
    space = Namespace(models_namespace, pod_security="baseline", labels=ROUTES_ALLOWED, opts=top).handle
    needs = [*definitions, *controllers]
    certificate = addons.secrets.fill(GATEWAY_NAMESPACE, [front.ready])
    token = addons.secrets.fill(models_namespace, [space.ready])
    tenants = declare_tenants(plan.tenants, front, space, needs, site.recovered, top)
    counters = declare_counters(plan, front, addons.hardware, top)
    door = FrontDoor(
        "front-door",
        FrontDoorArgs(
            model_lists=tenants.model_lists,
            aliases={alias: name for name, spec in site.models.items() for alias in spec.aliases},
            pickers=[
                Picker(
                    pool=name,
                    namespace=models_namespace,
                    authority=picker_authority(name, models_namespace),
                    parallel=site.gateway.max_parallel_streams,
                )
                for name in sorted(plan.named)
            ],
            namespace=front,
            target=target_gateway(),
            listener=listener_name(GATEWAY_NAMESPACE),
            port=door_port(site.gateway.port),
            tls=bool(site.gateway.certificate_secret),
            needs=needs,
        ),
        top,
    ).handle
    gateway = Gateway(
        "gateway",
        GatewayArgs(
            spec=site.gateway,
            namespace=front,
            # The listener opens only when keys are checked, and every tenant's priority is known.
            needs=[
                *needs,
                *tenants.ready,
                *counters,
                *door.ready,
                *addons.addresses,
                *addons.certificates,
                *certificate,
            ],
            drain_s=plan.longest_stream_s,
            body_kib=plan.body_kib,
            proxy_namespace=ENVOY_NAMESPACE if site.gateway.controllers == "chart" else None,
            proxy_image=plan.proxy_image,
            rate_limit=rate_limit(plan.tenants.limits) if plan.tenants.limits else None,
            scrapers=measured_by,
            certificates=site.certificates,
        ),
        top,
    ).handle
    GatewayProtection(
        "gateway-protection",
        GatewayProtectionArgs(
            gateway=gateway.name,
            gateway_namespace=gateway.namespace,
            models_namespace=models_namespace,
            manager=field_manager(),
            needs=[gateway.ready, *tenants.checked, *door.ready],
        ),
        top,
    )
    used = [own for serving in plan.named.values() for own in programs_of(serving.engine, serving.weights)]
    programs = PodPrograms("pod-programs", programs=used, namespace=space, opts=top).handle
    for name, serving in plan.named.items():
        Model(
            name,
            ModelArgs(
                spec=serving.spec,
                plan=serving.server,
                picker=serving.picker,
                parallel_requests=serving.parallel_requests,
                engine=serving.engine,
                ranks=serving.proof.order.model.task == "rerank",
                namespace=space,
                place=site.storage.weights.place,
                storage_class=site.storage.storage_class,
                hardware=addons.hardware,
                weights=serving.weights,
                programs=programs.ready,
                token=token,
                volume=site.storage.volumes,
                picker_image=versions.images.endpoint_picker,
                gateway=gateway,
                scrapers=measured_by,
                needs=needs,
            ),
            top,
        )
    measured = [
        *needs,
        front.ready,
        space.ready,
        *addons.hardware,
        *addons.certificates,
        *addons.secrets.store.ready,
        *addons.backups,
    ]
    filled = addons.secrets.bodies(namespaces.MONITORING)
    declare_monitoring(plan, models_namespace, GATEWAY_NAMESPACE, measured, top, filled, cluster.ends)
    return Platform(
        endpoint=gateway.endpoint,
        models=sorted(site.models),
        keys=pulumi.Output.all(**tenants.keys),
        kubeconfig=cluster.kubeconfig,
        talosconfig=cluster.talosconfig,
    )
