"""How many tokens of KV caches may be held, by one tenant or by all: for the gatekeeper, and as text for people."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from components.specs.callers import SharedCache
from components.specs.limits import CACHE_SHARE
from floor.counts import counted, listed
from floor.problems import Problem
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.site.model import SiteConfig

# Lines that people read.
_MOST_LINES = 5


def shared_caches(site: SiteConfig, models: Mapping[str, ModelPlan]) -> dict[str, SharedCache]:
    """Revision -> its cache, of each that admits by pages, or that may answer a tenant with a share."""
    answering = {
        revision.name
        for tenant in site.cache_shares
        for model in {*site.tenants[tenant].models, *_others(site, tenant)} & models.keys()
        for revision in models[model].serving(tenant)
    }
    return {
        revision.name: _cache(revision, model.stable)
        for model in models.values()
        for revision in model.revisions.values()
        if revision.name in answering or _paged(revision)
    }


def _others(site: SiteConfig, tenant: str) -> Iterable[str]:
    """Models that may answer a tenant in the place of its own."""
    own = site.tenants[tenant]
    return [to for model, to in site.overflows.items() if model in own.models and own.overflow == "accept"]


def _cache(revision: RevisionPlan, stable: RevisionPlan) -> SharedCache:
    """Of as many replicas as there always are, or one where there may be none: a share does not grow with a spike.

    stable: whose load is the model's, where a revision declares none of its own.
    """
    server, answer = revision.server, revision.server.max_answer_tokens
    load = revision.proof.order.load or stable.proof.order.load
    longest = server.max_model_len if answer is None else answer
    cache = SharedCache(tokens=_cache_tokens(revision), context=server.max_model_len, answer=longest)
    if not _paged(revision):
        return cache
    expected = math.ceil(load.answer_tokens.mean) if load else longest
    return replace(cache, room=_room_tokens(revision), expected=max(1, min(expected, longest)))


def _cache_tokens(revision: RevisionPlan) -> int:
    return int(revision.proof.case.cache_tokens) * max(1, revision.spec.server.least)


def _room_tokens(revision: RevisionPlan) -> int:
    """What its replicas hold, or what the requests hold that they run at once, if that is less."""
    case = revision.proof.case
    at_once = revision.settings["max_num_seqs"].whole
    if case.order.adapters:
        at_once = min(at_once, case.replica.adapted_at_once)
    running = at_once * case.layout.data * max(1, revision.spec.server.least)
    return min(_cache_tokens(revision), int(running * case.order.request_tokens))


def _paged(revision: RevisionPlan) -> bool:
    return revision.spec.pool.admission == "pages"


def without_place(site: SiteConfig, models: Mapping[str, ModelPlan]) -> Iterator[Problem]:
    """Tiers whose part of a model's room is less than a long request of its load: nearly all of theirs are refused."""
    caches = shared_caches(site, models)
    for model in models.values():
        cache, load = caches.get(model.stable.name), model.stable.proof.order.load
        if cache is None or not cache.room or load is None:
            continue
        needs = math.ceil(load.prompt_tokens.p95) + cache.expected
        least = min(1.0, math.ceil(1000 * needs / cache.room) / 1000)
        for name, tier in site.tiers.items():
            if tier.admitted_below < 1 and tier.admitted_below * cache.room < needs:
                yield Problem(
                    path=("tiers", name, "admitted_below"),
                    what=f"leaves the tier less room of {model.name} than one request takes, which would wait until "
                    "nothing else is under way",
                    got=f"{tier.admitted_below:g}, which is {tier.admitted_below * cache.room:,.0f} tokens",
                    allowed=f"{least:g} or more: {needs:,} tokens are a prompt of the 95th percentile and a mean "
                    "answer",
                    fix=f"write {least:g} or more, or give the tier no models that admit by pages",
                )


def describe_shares(site: SiteConfig, models: Mapping[str, ModelPlan]) -> list[str]:
    """The lines of a text for people: models that admit by pages, and the smallest shares first."""
    caches = shared_caches(site, models)
    below = [f"{name} below {tier.admitted_below:.0%}" for name, tier in site.tiers.items() if tier.admitted_below < 1]
    kept = f"; tier {listed(below)} of it" if below else ""
    all_of = [
        f"  KV cache    all tenants: up to {cache.room:,} tokens of {revision} under way, with answers of "
        f"{cache.expected:,} tokens{kept}  [estimated]"
        for revision, cache in caches.items()
        if cache.room
    ]
    alike: dict[tuple[float, str], list[str]] = defaultdict(list)
    for tenant, given in site.cache_shares.items():
        for model in sorted({*site.tenants[tenant].models} & models.keys()):
            alike[given[CACHE_SHARE], models[model].serving(tenant)[0].name].append(tenant)
    usual = {
        revision.name: revision.proof.order.request_tokens
        for model in models.values()
        for revision in model.revisions.values()
    }
    lines = []
    for (share, revision), tenants in sorted(alike.items()):
        cache = caches[revision]
        tokens = int(share * cache.tokens)
        lines.append(
            f"  KV cache    {listed(tenants)}: up to {tokens:,} of {cache.tokens:,} tokens of {revision} under way, "
            f"{counted(int(tokens / usual[revision]), 'request')} as the declared load has them, or "
            f"{counted(max(1, tokens // cache.context), 'request')} of the whole context  [estimated]"
        )
    shown, rest = [*all_of, *lines[:_MOST_LINES]], len(lines) - _MOST_LINES
    return [*shown, f"  KV cache    {rest:,} more: no smaller shares than these"] if rest > 0 else shown
