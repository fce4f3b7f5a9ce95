"""Declares a site's tenants: their keys, what they may call, and whose requests go first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pulumi

from components.gateway.connections import Connection
from components.gateway.gateway import proxy_labels
from components.gateway.gateway_controllers import ENVOY_NAMESPACE
from components.gateway.traffic_policies import target_gateway
from components.namespace import NamespaceHandle
from components.network_policies import ANY_NAMESPACE, Peer, peer
from components.tenants.access import Access, AccessArgs, client_id
from components.tenants.callers import Callers, CallersArgs, digest_of, tenants_file
from components.tenants.database import DatabaseArgs, PostgreSql
from components.tenants.directory import Directory, DirectoryArgs, Suspending
from components.tenants.gatekeeper import GATEKEEPER_PODS, Gatekeeper, GatekeeperArgs, gatekeeper_connection
from components.tenants.ledger import Ledger, LedgerAccess, LedgerArgs, LedgerHandle
from components.tenants.limits import LimitCounters, LimitCountersArgs, counters_address, limit_service
from components.tenants.model_list import model_list
from components.tenants.tiers import Tiers, TiersArgs
from floor import namespaces
from stacks.plan.database import database_volume_class, own_databases
from stacks.plan.idle import billed_idle, dedicated_gpus
from stacks.plan.lost_usage import log_gib
from stacks.plan.site_plan import SitePlan
from stacks.plan.volume_nodes import storing_nodes


@dataclass(frozen=True, kw_only=True)
class Tenants:
    """What the gateway has to know of them."""

    keys: Mapping[str, pulumi.Output[str]]
    """Client id -> key, secret."""
    model_lists: Mapping[str, str]
    """Tenant -> its answer to GET /v1/models; none where a gatekeeper knows it."""
    names: Mapping[str, str]
    """What a model may be called -> the model, for the front door."""
    adapters: Mapping[str, Sequence[str]]
    """Those of these names that are adapters -> tenants that may call them, where the door compares that."""
    gatekeeper: Connection | None
    """How Envoy reaches the gatekeeper, where one runs."""
    checked: list[pulumi.Resource]
    """Keys are checked once these are there."""
    ranked: list[pulumi.Resource]
    """Priorities are in force once these are there."""
    access: Access


def ranks_charged(plan: SitePlan) -> bool:
    """Whether tokens count, and a model ranks documents, of whose answers the AI gateway counts none."""
    counts = bool(plan.tenants.limits) or plan.site.has_ledger
    return counts and any(revision.ranks for revision in plan.revisions)


def limit_service_of(plan: SitePlan) -> dict[str, Any] | None:
    """Fields of Envoy Gateway's configuration that start the limit service; None where nothing counts."""
    if not plan.tenants.counted:
        return None
    image = plan.versions.images.limit_service
    return limit_service(namespaces.GATEWAY, plan.dns_domain, plan.tenants.counters, image)


def declare_counters(
    plan: SitePlan, front: NamespaceHandle, needs: Sequence[pulumi.Resource], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """What limits of tenants are counted in; nothing where nothing counts.

    needs: what makes volumes.
    """
    if not plan.tenants.counted:
        return []
    args = LimitCountersArgs(
        spec=plan.tenants.counters,
        namespace=front,
        image=plan.versions.images.limit_counters,
        storage_class=plan.tenants.counter_class,
        placing=storing_nodes(plan.site, plan.tenants.counter_class),
        readers=[peer(GATEKEEPER_PODS)] if plan.tenants.by_gatekeeper else [],
        needs=needs,
    )
    return LimitCounters("limit-counters", args, opts).handle.ready


def declare_database(
    plan: SitePlan,
    front: NamespaceHandle,
    scrapers: Sequence[Peer],
    filled: Sequence[Mapping[str, Any]],
    needs: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """The platform's own PostgreSQL; nothing where the site has another.

    needs: what runs it, and what makes volumes. filled: Secrets with the keys of its bucket.
    """
    databases = own_databases(plan.site)
    if not databases:
        return []
    args = DatabaseArgs(
        spec=plan.site.database,
        image=plan.versions.images.postgresql,
        storage_class=database_volume_class(plan.site),
        placing=storing_nodes(plan.site, database_volume_class(plan.site)),
        databases=databases,
        front=front,
        scrapers=scrapers,
        filled=filled,
        needs=needs,
    )
    return PostgreSql("database", args, opts).handle.ready


def declare_ledger(
    plan: SitePlan, front: NamespaceHandle, needs: Sequence[pulumi.Resource], opts: pulumi.ResourceOptions
) -> LedgerHandle | None:
    """What rows of requests are kept by; None where the site has no ledger.

    needs: the namespace of Envoy pods, and Secrets that a store fills.
    """
    if not plan.site.has_ledger:
        return None
    args = LedgerArgs(
        spec=plan.site.usage,
        image=plan.versions.images.ledger,
        namespace=front,
        proxy_namespace=ENVOY_NAMESPACE,
        networks=plan.tenants.names_networks,
        revisions=plan.tenants.chooses_revisions,
        log_gib=log_gib(plan.site, plan.models),
        idle={name: asdict(gpus) for name, gpus in billed_idle(plan).items()},
        dedicated=dedicated_gpus(plan),
        served=plan.tenants.names.keys(),
        needs=needs,
    )
    return Ledger("ledger", args, opts).handle


def declare_tenants(
    plan: SitePlan,
    front: NamespaceHandle,
    models: NamespaceHandle,
    needs: list[pulumi.Resource],
    filled: Sequence[pulumi.Resource],
    scrapers: Sequence[Peer],
    top: pulumi.ResourceOptions,
    *,
    ledger: LedgerAccess | None,
) -> Tenants:
    """Declare them at the site's gateway.

    front, models: the namespaces of the gateway and of models. filled: Secrets of the first that a store fills.
    scrapers: pods that measure. ledger: where usage is counted; None where the site has none.
    """
    tenants = plan.tenants
    target = target_gateway()
    access = Access(
        "access",
        AccessArgs(
            tenants=tenants.tenants,
            models=tenants.models,
            namespace=front,
            target=target,
            needs=needs,
            in_secrets=tenants.by_gateway,
            recovered=plan.site.recovered,
        ),
        top,
    )
    keys = access.handle.keys
    ranked: list[pulumi.Resource] = []
    if tenants.tiers or tenants.limits or plan.site.has_ledger:
        ranked = Tiers(
            "tiers",
            TiersArgs(
                tiers=tenants.tiers,
                tier_of=tenants.tier_of,
                limits=tenants.limits,
                by_scripts=tenants.by_gateway,
                metered=plan.site.has_ledger,
                pools=tenants.pools,
                namespace=front,
                target=target,
                models_namespace=models,
                needs=needs,
            ),
            top,
        ).handle.ready
    decided: list[pulumi.Resource] = []
    if tenants.by_gatekeeper:
        decided = _declare_gatekeeper(plan, keys, front, needs, filled, scrapers, top, ledger)
    parallel = plan.site.gateway.max_parallel_streams
    lists = {tenant: model_list(owners) for tenant, owners in tenants.listed.items()}
    return Tenants(
        keys=keys,
        model_lists=lists if tenants.by_gateway else {},
        names={called: model for called, model in tenants.names.items() if called != model or tenants.by_gatekeeper},
        adapters=tenants.adapter_callers,
        gatekeeper=gatekeeper_connection(front.name, parallel) if tenants.by_gatekeeper else None,
        checked=[*access.handle.ready, *decided],
        ranked=ranked,
        access=access,
    )


def _declare_gatekeeper(
    plan: SitePlan,
    keys: Mapping[str, pulumi.Output[str]],
    front: NamespaceHandle,
    needs: Sequence[pulumi.Resource],
    filled: Sequence[pulumi.Resource],
    scrapers: Sequence[Peer],
    top: pulumi.ResourceOptions,
    ledger: LedgerAccess | None,
) -> list[pulumi.Resource]:
    tenants, images = plan.tenants, plan.versions.images
    specs = {
        client_id(name, key): spec for name, tenant in tenants.tenants.items() for key, spec in tenant.keys.items()
    }
    known = Callers(
        "callers",
        CallersArgs(
            tenants=tenants_file(
                tenants.tenants,
                tiers=tenants.tiers,
                limits=tenants.limits,
                bounds=tenants.bounds,
                budgets=tenants.budgets,
                names=tenants.names,
                owners=tenants.owners,
                contexts={name: model.stable.server.max_model_len for name, model in plan.models.items()},
                canaries=tenants.canaries,
                dedicated=tenants.dedicated,
                adapters=tenants.adapters,
                overflows=tenants.overflows,
                pools=tenants.filling,
                caches=tenants.caches,
            ),
            digests={client: spec.sha256 or keys[client].apply(digest_of) for client, spec in specs.items()},
            keys=json.dumps({client: spec.sha256 or spec.rotation for client, spec in specs.items()}, sort_keys=True),
            namespace=front,
            needs=needs,
        ),
        top,
    ).handle
    shared: list[pulumi.Resource] = []
    if tenants.callers.database_secret is not None:
        abuse = plan.site.usage.abuse
        suspending = None
        if ledger and abuse and abuse.suspend_on:
            suspending = Suspending(
                ledger=ledger,
                signals=abuse.suspend_on,
                most_per_hour=abuse.most_suspended_per_hour,
                never=abuse.never_suspended,
            )
        directory = DirectoryArgs(
            image=images.directory,
            namespace=front,
            known=known,
            database_secret=tenants.callers.database_secret,
            pepper=tenants.callers.pepper,
            suspending=suspending,
            needs=[*needs, *filled],
            recovered=plan.site.recovered,
        )
        shared = Directory("directory", directory, top).handle.shared
    proxies = ENVOY_NAMESPACE if plan.site.gateway.controllers == "chart" else ANY_NAMESPACE
    args = GatekeeperArgs(
        known=known,
        directory=tenants.callers.database_secret is not None,
        image=images.gatekeeper,
        namespace=front,
        proxies=peer(proxy_labels(front.name), proxies),
        scrapers=scrapers,
        counters=counters_address(front.name) if tenants.counted else None,
        refuse_uncounted=tenants.counters.when_away == "refuse",
        ledger=ledger if tenants.budgets else None,
        networks=tenants.names_networks,
        needs=[*needs, *shared],
    )
    return Gatekeeper("gatekeeper", args, top).handle.ready
