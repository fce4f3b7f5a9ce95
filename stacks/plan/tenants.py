"""The plan of a site's tenants: who may call what, under which names and in which tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.specs.access import TenantSpec
from components.specs.limits import CountersSpec
from components.specs.longhorn import scratch_class
from components.specs.tiers import TierSpec
from stacks.plan.models import ModelPlan
from stacks.site.model import SiteConfig


@dataclass(frozen=True, kw_only=True)
class TenantsPlan:
    """All tenants of a site."""

    tenants: Mapping[str, TenantSpec]
    tiers: Mapping[str, TierSpec]
    models: tuple[str, ...]
    """Every model that the site serves."""
    pools: tuple[str, ...]
    """Those that serve them: each revision has one of its name."""
    listed: Mapping[str, Mapping[str, str]]
    """Tenant -> what it is shown: each name that it may call, an alias too -> who owns that model."""

    limits: Mapping[str, Mapping[str, int]]
    """Tenant -> key of each limit that it has -> most of it; tenants without any are not here."""
    counters: CountersSpec
    counter_class: str
    """Class of the volume with the counters."""

    @property
    def tier_of(self) -> dict[str, str]:
        """Tenant -> tier, of the tenants that have one."""
        return {name: tenant.tier for name, tenant in self.tenants.items() if tenant.tier}


def _counter_class(site: SiteConfig) -> str:
    if site.counters.storage_class is not None:
        return site.counters.storage_class
    named = site.storage.storage_class
    return scratch_class(named) if site.storage.system == "longhorn" else named


def plan_tenants(site: SiteConfig, models: Mapping[str, ModelPlan]) -> TenantsPlan:
    """The tenants of a site with these models."""
    owners = {name: dict.fromkeys(model.served_names, model.stable.engine.owned_by) for name, model in models.items()}
    return TenantsPlan(
        tenants=site.tenants,
        tiers=site.tiers,
        models=tuple(site.models),
        pools=tuple(revision.name for model in models.values() for revision in model.revisions),
        listed={
            tenant: {called: owner for name in spec.models for called, owner in owners.get(name, {}).items()}
            for tenant, spec in site.tenants.items()
        },
        limits=site.limits,
        counters=site.counters,
        counter_class=_counter_class(site),
    )
