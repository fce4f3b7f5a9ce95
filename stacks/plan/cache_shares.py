"""How many tokens of KV caches may be held, by one tenant or by all: for the gatekeeper, and as text for people."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from components.specs.callers import SharedCache
from components.specs.limits import CACHE_SHARE
from floor.counts import counted, listed
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.site.model import SiteConfig

# Lines that people read.
_MOST_LINES = 5


def shared_caches(site: SiteConfig, models: Mapping[str, ModelPlan]) -> dict[str, SharedCache]:
    """Pool -> its cache, of each that admits by pages, or that a tenant with a share may use. A canary's is part of its
    model's."""
    pools = {revision.name for model in models.values() for revision in model.revisions.values() if _paged(revision)}
    pools |= {
        pool
        for tenant in site.cache_shares
        for model in {*site.tenants[tenant].models, *_others(site, tenant)} & models.keys()
        for pool in {models[model].stable.name, *_own(models[model], tenant)}
    }
    caches: dict[str, SharedCache] = {}
    for model in models.values():
        groups = [[revision for revision in model.revisions.values() if not revision.id.group]]
        groups += [[revision] for revision in model.revisions.values() if revision.id.group]
        caches |= {group[0].name: _cache(group) for group in groups if group[0].name in pools}
    return caches


def _others(site: SiteConfig, tenant: str) -> Iterable[str]:
    """Models that may answer a tenant in the place of its own."""
    own = site.tenants[tenant]
    return [to for model, to in site.overflows.items() if model in own.models and own.overflow == "accept"]


def _own(model: ModelPlan, tenant: str) -> list[str]:
    revision = model.dedicated.get(tenant)
    return [revision.name] if revision else []


def _cache(revisions: list[RevisionPlan]) -> SharedCache:
    """Of replicas that answer the same tenants, the stable ones first.

    As many replicas as there always are, or one where there may be none: a share does not grow with a spike.
    """
    server, answer, load = revisions[0].server, revisions[0].server.max_answer_tokens, revisions[0].proof.order.load
    longest = server.max_model_len if answer is None else answer
    cache = SharedCache(
        tokens=sum(_cache_tokens(revision) for revision in revisions), context=server.max_model_len, answer=longest
    )
    if not _paged(revisions[0]):
        return cache
    expected = math.ceil(load.answer_tokens.mean) if load else longest
    return replace(
        cache, room=sum(room_tokens(revision) for revision in revisions), expected=max(1, min(expected, longest))
    )


def _cache_tokens(revision: RevisionPlan) -> int:
    return int(revision.proof.case.cache_tokens) * max(1, revision.spec.server.least)


def room_tokens(revision: RevisionPlan) -> int:
    """What its replicas hold, or what the requests hold that they run at once, if that is less."""
    case = revision.proof.case
    running = revision.settings["max_num_seqs"].whole * case.layout.data * max(1, revision.spec.server.least)
    return min(_cache_tokens(revision), int(running * case.order.request_tokens))


def _paged(revision: RevisionPlan) -> bool:
    return revision.spec.pool.admission == "pages"


def describe_shares(site: SiteConfig, models: Mapping[str, ModelPlan]) -> list[str]:
    """The lines of a text for people: models that admit by pages, and the smallest shares first."""
    caches = shared_caches(site, models)
    below = [f"{name} below {tier.admitted_below:.0%}" for name, tier in site.tiers.items() if tier.admitted_below < 1]
    kept = f"; tier {listed(below)} of it" if below else ""
    all_of = [
        f"  KV cache    all tenants: up to {cache.room:,} tokens of {pool} under way, with answers of "
        f"{cache.expected:,} tokens{kept}  [estimated]"
        for pool, cache in caches.items()
        if cache.room
    ]
    alike: dict[tuple[float, str], list[str]] = defaultdict(list)
    for tenant, given in site.cache_shares.items():
        for model in sorted({*site.tenants[tenant].models} & models.keys()):
            pool = next(iter(_own(models[model], tenant)), models[model].stable.name)
            alike[given[CACHE_SHARE], pool].append(tenant)
    usual = {
        revision.name: revision.proof.order.request_tokens
        for model in models.values()
        for revision in model.revisions.values()
    }
    lines = []
    for (share, pool), tenants in sorted(alike.items()):
        cache = caches[pool]
        tokens = int(share * cache.tokens)
        lines.append(
            f"  KV cache    {listed(tenants)}: up to {tokens:,} of {cache.tokens:,} tokens of {pool} under way, "
            f"{counted(int(tokens / usual[pool]), 'request')} as the declared load has them, or "
            f"{counted(max(1, tokens // cache.context), 'request')} of the whole context  [estimated]"
        )
    rest = len(lines) - _MOST_LINES
    return [
        *all_of,
        *lines[:_MOST_LINES],
        *([f"  KV cache    {rest:,} more: no smaller shares than these"] if rest > 0 else []),
    ]
