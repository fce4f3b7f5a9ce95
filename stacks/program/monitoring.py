"""Declares what measures a site, as far as the site lets the program do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.addons import registry
from components.addons.grafana import GRAFANA_PODS
from components.addons.keda import OPERATOR_PODS
from components.gateway.gateway_controllers import ENVOY_NAMESPACE
from components.monitoring import host_scrapes, kube_state_metrics, prometheus, watcher
from components.monitoring.monitoring import Monitoring, MonitoringArgs, scrapers
from components.monitoring.rules import SCALING, STARTING, Measured
from components.monitoring.scraping import ENGINES, own_targets, portal_target, serving_targets
from components.network_policies import peer
from components.scrape_target import ScrapeTarget
from floor import namespaces
from stacks.plan.database import own_databases
from stacks.plan.gpu_faults import load_tests, losses, node_offers
from stacks.plan.monitoring import volume_class
from stacks.plan.promises import site_promise
from stacks.plan.site_plan import SitePlan
from stacks.plan.volume_nodes import storing_nodes
from stacks.site.model import SiteConfig


def declare_monitoring(
    plan: SitePlan,
    models_namespace: str,
    gateway_namespace: str,
    needs: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
    filled: Sequence[Mapping[str, Any]] = (),
    ends: Mapping[str, Mapping[str, pulumi.Output[int]]] | None = None,
) -> list[pulumi.Resource]:
    """Declare nothing where the site sets `none`; what must be there before it works.

    needs: definitions, volumes, and every namespace with targets. filled: what fills Secrets that it reads.
    ends: of the cluster's credentials; empty or None for an existing cluster.
    """
    site = plan.site
    if site.monitoring.system == "none":
        return []
    targets, hosts = targets_of(site, models_namespace, gateway_namespace), host_jobs(site)
    own = site.monitoring.system == "prometheus_operator"
    backup = site.cluster.machines.etcd_backup if site.cluster.machines else None
    args = MonitoringArgs(
        spec=site.monitoring,
        site=site.name,
        images=dict(plan.versions.images),
        targets=targets,
        promise=site_promise(plan, site.monitoring.availability_percent, _kept_jobs(site, jobs_of(targets, own=own))),
        measured=Measured(
            parts={
                *(target.job for target in targets),
                *(["credentials"] if own and ends else []),
                *(["prices"] if site.usage.prices else []),
                *(["key-signals"] if site.usage.abuse else []),
                *(["suspensions"] if site.usage.abuse and site.usage.abuse.suspend_on else []),
                *(["canaries"] if plan.tenants.canaries else []),
                *([SCALING] if site.scales else []),
                *([STARTING] if site.starts_on_request else []),
                *(["overflows"] if plan.tenants.filling else []),
                *(["budgets"] if plan.tenants.budgets else []),
                *(["hosts", "control-plane"] if hosts else []),
                *(["etcd-members"] if host_scrapes.ETCD in hosts else []),
                *(["pod-network"] if site.measures_pod_network else []),
            },
            servers=own,
            etcd_backup_every_h=backup.every_h if backup else None,
            database=site.database if own_databases(site) else None,
        ),
        storage_class=volume_class(site) or "",
        placing=storing_nodes(site, volume_class(site) or ""),
        filled=filled,
        host_jobs=hosts,
        credential_ends=(ends or {}) if own else {},
        askers=[
            *([peer(OPERATOR_PODS, keda_namespace(site))] if own and site.scales else []),
            *([peer(watcher.LABELS)] if site.has_watcher else []),
            *([peer(GRAFANA_PODS)] if site.monitoring.grafana.run_by == "platform" else []),
        ],
        needs=needs,
    )
    measuring = Monitoring("monitoring", args, opts).handle
    if site.has_watcher:
        _declare_watcher(plan, models_namespace, measuring.ready, opts)
    return measuring.ready


def _declare_watcher(
    plan: SitePlan, models_namespace: str, needs: Sequence[pulumi.Resource], opts: pulumi.ResourceOptions
) -> None:
    lost = losses(plan.site, plan.placed, plan.specs)
    args = watcher.WatcherArgs(
        spec=plan.site.monitoring.gpu_faults,
        image=plan.versions.images.watcher,
        nodes=node_offers(plan.site),
        may_lose=[node for node, short in lost.items() if not short],
        models_namespace=models_namespace,
        validated=plan.site.cluster.gpu_stack == "operator",
        load_tests=load_tests(plan.site),
        load_image=plan.versions.images.vllm,
        scrapers=scrapers(plan.site.monitoring),
        needs=needs,
    )
    watcher.Watcher("watcher", args, opts)


def keda_namespace(site: SiteConfig) -> str:
    """Where KEDA is that scales this site's models."""
    return site.autoscaling.namespace if site.autoscaling.system == "external" else namespaces.AUTOSCALING


def prometheus_of(site: SiteConfig) -> str:
    """Address of the Prometheus that measures the models."""
    return site.autoscaling.prometheus or prometheus.ADDRESS


def targets_of(site: SiteConfig, models_namespace: str, gateway_namespace: str) -> list[ScrapeTarget]:
    """What of this site is measured. GPUs and storage that others bring are theirs to measure."""
    by_chart = site.gateway.controllers == "chart"
    proxies = ENVOY_NAMESPACE if by_chart else None
    targets = serving_targets(models_namespace, gateway_namespace, proxies, shipped=site.has_ledger)
    portal = [portal_target(gateway_namespace, proxies)] if site.has_portal else []
    return [*targets, *portal, *(target for addon in registry.installed(site) for target in addon.targets)]


def host_jobs(site: SiteConfig) -> list[str]:
    """Jobs of nodes, the control plane and the pod network. etcd's members show theirs where the program configures the
    machines."""
    if not site.measures_hosts:
        return []
    etcd = [host_scrapes.ETCD] if site.cluster.machines else []
    return [*host_scrapes.JOBS, *etcd, *(host_scrapes.POD_NETWORK if site.measures_pod_network else [])]


def _kept_jobs(site: SiteConfig, jobs: Sequence[str]) -> list[str]:
    """Of the jobs, those that always have a target: engines have none while no model has a replica."""
    kept = any(spec.server.least for _, spec in site.revisions) or not site.revisions
    return [job for job in jobs if job != ENGINES or kept]


def jobs_of(targets: Sequence[ScrapeTarget], *, own: bool) -> list[str]:
    """Jobs that must have a target. own: whether the program installs what measures.

    Rules ask for kube-state-metrics everywhere; beside an operator of the site's own it is the site's.
    """
    others = [target.job for target in own_targets()] if own else [kube_state_metrics.NAME]
    return list(dict.fromkeys([*(target.job for target in targets), *others]))
