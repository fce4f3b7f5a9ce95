"""The plan of a site's tenants: who may call what, under which names and in which tier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.specs.access import TenantSpec
from components.specs.adapters import AdapterGrant
from components.specs.callers import CallersSpec, Canary, Dedicated, FillingPool, Overflow, SharedCache
from components.specs.inference_pool import picker_metrics
from components.specs.limits import CountersSpec
from components.specs.longhorn import scratch_class
from components.specs.tiers import TierSpec
from stacks.plan.cache_shares import shared_caches
from stacks.plan.models import MODELS_NAMESPACE, ModelPlan, RevisionPlan
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
    names: Mapping[str, str]
    """What a model may be called, by its own name, an alias or an adapter of it -> the model."""
    owners: Mapping[str, str]
    """Model -> who owns it."""
    canaries: Mapping[str, Canary]
    """Model -> its second revision, of the models that have one."""
    dedicated: Mapping[str, Mapping[str, Dedicated]]
    """Tenant -> model -> the replicas that answer it in the place of those of all others; tenants without are not
    here."""
    adapters: Mapping[str, AdapterGrant]
    """Those of these names that are adapters, with who may call them."""
    overflows: Mapping[str, Overflow]
    """Model -> where its requests go while it is full or away, of the models that have such a place."""
    filling: Mapping[str, FillingPool]
    """Of each revision whose room decides about requests, how full it is: on either side of these, and of dedicated
    replicas that others stand in for."""
    callers: CallersSpec
    by_gatekeeper: bool
    """Whether the gatekeeper runs."""
    names_networks: bool
    """Whether it names the network of each request, by which the ledger watches keys."""
    limits: Mapping[str, Mapping[str, int]]
    """Tenant -> key of each limit that it has -> most of it; tenants without any are not here."""
    bounds: Mapping[str, Mapping[str, float]]
    """The same of the limits that a gatekeeper holds."""
    caches: Mapping[str, SharedCache]
    """Revision -> its KV cache, of each that admits by pages, or of which a tenant may hold a share only."""
    budgets: Mapping[str, Mapping[str, float]]
    """The same of the limits of a month."""
    counters: CountersSpec
    counted: bool
    """Whether the limit service and its counters run."""
    counter_class: str
    """Class of the volume with the counters."""

    @property
    def listed(self) -> dict[str, dict[str, str]]:
        """Tenant -> what it is shown: each name that it may call, alias or adapter too -> who owns that model."""
        return {
            tenant: {
                called: self.owners[model]
                for called, model in sorted(self.names.items())
                if model in spec.models and (called not in self.adapters or self.adapters[called].opens_to(tenant))
            }
            for tenant, spec in self.tenants.items()
        }

    @property
    def adapter_callers(self) -> dict[str, tuple[str, ...]]:
        """Adapter -> tenants that may call it, where the gateway compares them; none where a gatekeeper does."""
        return {
            name: tuple(tenant for tenant, names in self.listed.items() if name in names) if self.by_gateway else ()
            for name in self.adapters
        }

    @property
    def chooses_revisions(self) -> bool:
        """Whether the gatekeeper sends requests to others than a model's stable revision."""
        return bool(self.canaries or self.dedicated)

    @property
    def by_gateway(self) -> bool:
        """Whether Envoy Gateway has what it decides by: keys, and tables of tenants for its scripts."""
        return self.callers.decided_by == "gateway" or self.callers.keep_both

    @property
    def tier_of(self) -> dict[str, str]:
        """Tenant -> tier, of the tenants that have one."""
        return {name: tenant.tier for name, tenant in self.tenants.items() if tenant.tier}


def _counter_class(site: SiteConfig) -> str:
    if site.counters.storage_class is not None:
        return site.counters.storage_class
    named = site.storage.storage_class
    return scratch_class(named) if site.storage.system == "longhorn" else named


def _canaries(models: Mapping[str, ModelPlan]) -> Iterator[tuple[str, Canary]]:
    for name, model in models.items():
        if (canary := model.canary) and (spec := model.stable.spec.canary):
            yield (
                name,
                Canary(revision=canary.name, percent=spec.percent, sticky=spec.sticky, pinned=dict(spec.pinned)),
            )


def _dedicated(models: Mapping[str, ModelPlan]) -> dict[str, dict[str, Dedicated]]:
    by_tenant: dict[str, dict[str, Dedicated]] = defaultdict(dict)
    for name, model in models.items():
        for tenant, revision in model.dedicated.items():
            when_away = model.stable.spec.dedicated[revision.id.group].when_away
            by_tenant[tenant][name] = Dedicated(revision=revision.name, when_away=when_away)
    return dict(by_tenant)


def _adapters(models: Mapping[str, ModelPlan]) -> Iterator[tuple[str, AdapterGrant]]:
    for name, model in models.items():
        for adapter, spec in sorted(model.stable.spec.adapters.items()):
            yield adapter, AdapterGrant(model=name, tenants=spec.tenants)


def _pool(revision: RevisionPlan) -> FillingPool:
    """Full is what its pickers take for it: requests of the lowest tiers give way then, or wait in queues."""
    picker = revision.picker
    return FillingPool(
        metrics=picker_metrics(revision.name, MODELS_NAMESPACE),
        queue=picker.shedding_queue_threshold,
        cache=picker.kv_threshold,
    )


def plan_tenants(site: SiteConfig, models: Mapping[str, ModelPlan]) -> TenantsPlan:
    """The tenants of a site with these models."""
    adapters = dict(_adapters(models))
    overflows = {name: to for name, to in site.overflows.items() if {name, to} <= models.keys()}
    dedicated, shares = _dedicated(models), site.cache_shares
    followed = [models[name].stable for name in sorted({*overflows, *overflows.values()})]
    followed += [
        revision
        for model in models.values()
        for revision in model.revisions.values()
        if revision.id.group and model.stable.spec.dedicated[revision.id.group].when_away == "shared"
    ]
    return TenantsPlan(
        tenants=site.tenants,
        tiers=site.tiers,
        models=tuple(site.models),
        pools=tuple(revision.name for model in models.values() for revision in model.revisions),
        names={called: name for name, model in models.items() for called in model.served_names}
        | {name: grant.model for name, grant in adapters.items()},
        owners={name: model.stable.engine.owned_by for name, model in models.items()},
        canaries=dict(_canaries(models)),
        dedicated=dedicated,
        adapters=adapters,
        overflows={
            name: Overflow(to=to, context=models[to].stable.server.max_model_len) for name, to in overflows.items()
        },
        filling={revision.name: _pool(revision) for revision in followed},
        callers=site.callers,
        by_gatekeeper=site.has_gatekeeper,
        names_networks=site.has_gatekeeper and site.usage.abuse is not None,
        limits=site.limits,
        bounds={name: site.bounds.get(name, {}) | shares.get(name, {}) for name in sorted({*site.bounds, *shares})},
        caches=shared_caches(site, models),
        budgets=site.budgets,
        counters=site.counters,
        counted=site.limits_tenants,
        counter_class=_counter_class(site),
    )
