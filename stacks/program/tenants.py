"""Declares a site's tenants: their keys, what they may call, and whose requests go first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.gateway.traffic_policies import target_gateway
from components.namespace import NamespaceHandle
from components.tenants.access import Access, AccessArgs
from components.tenants.limits import LimitCounters, LimitCountersArgs, limit_service
from components.tenants.model_list import model_list
from components.tenants.tiers import Tiers, TiersArgs
from floor import namespaces
from stacks.plan.site_plan import SitePlan
from stacks.plan.tenants import TenantsPlan
from stacks.plan.volume_nodes import storing_nodes


@dataclass(frozen=True, kw_only=True)
class Tenants:
    """What the gateway has to know of them."""

    keys: Mapping[str, pulumi.Output[str]]
    """Client id -> key, secret."""
    model_lists: Mapping[str, str]
    """Tenant -> its answer to GET /v1/models."""
    checked: list[pulumi.Resource]
    """Keys are checked once these are there."""
    ranked: list[pulumi.Resource]
    """Priorities are in force once these are there."""

    @property
    def ready(self) -> list[pulumi.Resource]:
        """No request may pass before these are there."""
        return [*self.checked, *self.ranked]


def limit_service_of(plan: SitePlan) -> dict[str, Any] | None:
    """Fields of Envoy Gateway's configuration that start the limit service; None where no tenant has a limit."""
    if not plan.tenants.limits:
        return None
    image = plan.versions.images.limit_service
    return limit_service(namespaces.GATEWAY, plan.dns_domain, plan.tenants.counters, image)


def declare_counters(
    plan: SitePlan, front: NamespaceHandle, needs: Sequence[pulumi.Resource], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """What limits of tenants are counted in; nothing where no tenant has one.

    needs: what makes volumes.
    """
    if not plan.tenants.limits:
        return []
    args = LimitCountersArgs(
        spec=plan.tenants.counters,
        namespace=front,
        image=plan.versions.images.limit_counters,
        storage_class=plan.tenants.counter_class,
        placing=storing_nodes(plan.site, plan.tenants.counter_class),
        needs=needs,
    )
    return LimitCounters("limit-counters", args, opts).handle.ready


def declare_tenants(
    plan: TenantsPlan,
    front: NamespaceHandle,
    models: NamespaceHandle,
    needs: list[pulumi.Resource],
    recovered: str | None,
    top: pulumi.ResourceOptions,
) -> Tenants:
    """Declare them at the site's gateway.

    front, models: the namespaces of the gateway and of models. recovered: file with the keys that a lost state had.
    """
    target = target_gateway()
    access = Access(
        "access",
        AccessArgs(
            tenants=plan.tenants, models=plan.models, namespace=front, target=target, needs=needs, recovered=recovered
        ),
        top,
    ).handle
    ranked: list[pulumi.Resource] = []
    if plan.tiers or plan.limits:
        ranked = Tiers(
            "tiers",
            TiersArgs(
                tiers=plan.tiers,
                tier_of=plan.tier_of,
                limits=plan.limits,
                pools=plan.pools,
                namespace=front,
                target=target,
                models_namespace=models,
                needs=needs,
            ),
            top,
        ).handle.ready
    lists = {tenant: model_list(owners) for tenant, owners in plan.listed.items()}
    return Tenants(keys=access.keys, model_lists=lists, checked=access.ready, ranked=ranked)
