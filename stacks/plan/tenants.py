"""The plan of a site's tenants: who may call what, under which names and in which tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.specs.access import TenantSpec
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
    listed: Mapping[str, Mapping[str, str]]
    """Tenant -> what it is shown: each name that it may call, an alias too -> who owns that model."""

    @property
    def tier_of(self) -> dict[str, str]:
        """Tenant -> tier, of the tenants that have one."""
        return {name: tenant.tier for name, tenant in self.tenants.items() if tenant.tier}


def plan_tenants(site: SiteConfig, models: Mapping[str, ModelPlan]) -> TenantsPlan:
    """The tenants of a site with these models."""
    owners = {name: dict.fromkeys(model.served_names, model.stable.engine.owned_by) for name, model in models.items()}
    return TenantsPlan(
        tenants=site.tenants,
        tiers=site.tiers,
        models=tuple(site.models),
        listed={
            tenant: {called: owner for name in spec.models for called, owner in owners.get(name, {}).items()}
            for tenant, spec in site.tenants.items()
        },
    )
