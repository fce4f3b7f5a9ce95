"""What a tenant's share of KV caches comes to, and where it is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from components.tenants.callers import tenants_file
from floor.problems import SiteError
from stacks.plan.cache_shares import describe_shares, shared_caches
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("001.14", "001.15")

LONG, MODEL = "glm-5-1", "qwen3-32b"


def shared(change: dict[str, Any]) -> SitePlan:
    start: dict[str, Any] = {"callers.decided_by": "gatekeeper"}
    return plan_values(changed(prod(), start | change), "site.yaml")


def test_a_share_is_of_the_cache_of_the_replicas_that_there_always_are() -> None:
    """By a plan or a tenant's own; one replica is counted where there may be none."""
    plan = shared({"plans": {"team": {"kv_cache_share": 0.5}}, "tenants.archive.plan": "team"})
    proof, server = plan.named[MODEL].proof, plan.named[MODEL].server
    cache = shared_caches(plan.site, plan.models)[MODEL]
    assert cache.tokens == int(proof.case.cache_tokens) * plan.named[MODEL].spec.server.replicas
    assert (cache.context, cache.answer) == (server.max_model_len, server.max_answer_tokens or server.max_model_len)
    half = cache.tokens // 2
    (line,) = describe_shares(plan.site, plan.models)
    usual = int(half / proof.order.request_tokens)
    assert f"archive: up to {half:,} of {cache.tokens:,} tokens of {MODEL} under way, {usual:,} requests" in line
    assert line in plan.limits_text.splitlines()
    lower = shared({"plans": {"team": {"kv_cache_share": 0.5}}, "tenants.archive.limits": {"kv_cache_share": 0.1}})
    assert lower.tenants.bounds["archive"] == {"kv_cache_share": 0.1}
    assert lower.tenants.counted


def test_each_revision_that_may_answer_a_tenant_has_a_cache_of_its_own() -> None:
    """A canary has no room for those that its model's own replicas answer; and replicas that stand in count."""
    share: dict[str, Any] = {"tenants.archive.limits": {"kv_cache_share": 0.1}}
    canary = {f"models.{MODEL}.canary": {"percent": 0, "server": {"replicas": 2}}}
    alone, beside = shared(share).tenants.caches, shared(share | canary).tenants.caches
    assert beside[MODEL] == alone[MODEL]
    assert len(beside) == len(alone) + 1
    own = {"tenants": ["archive"], "server": {"replicas": 1}}
    for when_away, others in (("refuse", set[str]()), ("shared", {MODEL})):
        plan = shared(share | {f"models.{MODEL}.dedicated": {"own": own | {"when_away": when_away}}})
        (group,) = [revision.name for revision in plan.named.values() if revision.id.group]
        assert plan.tenants.caches.keys() - {LONG} == {group} | others
        content = json.loads(tenants_file(plan.site.tenants, bounds=plan.tenants.bounds, caches=plan.tenants.caches))
        assert content["caches"][group]["tokens"] == plan.tenants.caches[group].tokens
        assert content["tenants"]["archive"]["bounds"] == {"kv_cache_share": 0.1}
    assert plan_values(prod(), "site.yaml").tenants.caches == {}


def test_dedicated_replicas_without_a_load_expect_the_answers_of_their_model() -> None:
    own = {f"models.{MODEL}.dedicated": {"own": {"tenants": ["archive"], "server": {"replicas": 1}}}}
    caches = shared({f"models.{MODEL}.pool.admission": "pages"} | own).tenants.caches
    assert len(caches) == 2
    assert len({cache.expected for cache in caches.values()}) == 1


@pytest.mark.row("001.19")
def test_a_model_that_admits_by_pages_counts_answers_of_the_mean_length() -> None:
    pages: dict[str, Any] = {f"models.{MODEL}.pool.admission": "pages"}
    plan = shared(pages)
    load = plan.named[MODEL].proof.order.load
    assert load is not None
    assert plan.tenants.caches.keys() == {MODEL}
    cache, running = plan.tenants.caches[MODEL], plan.named[MODEL].settings["max_num_seqs"].whole
    assert cache.expected == math.ceil(load.answer_tokens.mean)
    assert plan.tenants.counted
    assert f"all tenants: up to {cache.room:,} tokens of {MODEL} under way" in plan.limits_text
    replicas = plan.named[MODEL].spec.server.replicas
    assert cache.room == min(cache.tokens, int(running * replicas * load.request_tokens))
    few = {"max_num_seqs": {"value": running // 2, "reason": "fewer than its cache holds"}}
    slow = {f"models.{MODEL}.overrides": few, f"models.{MODEL}.load.requests_per_s": 0.1}
    by_number = shared(pages | slow).tenants.caches[MODEL].room
    assert by_number == int(running // 2 * replicas * load.request_tokens) < cache.room
    kept: dict[str, Any] = {"tiers.low": {"priority": -1, "admitted_below": 0.6}, "tenants.archive.tier": "low"}
    lower = shared(pages | kept)
    assert "; tier low below 60% of it" in lower.limits_text
    assert json.loads(tenants_file(lower.site.tenants, tiers=lower.site.tiers))["rooms"] == {"low": 0.6}
    with pytest.raises(SiteError, match=r"fix: write 0\.0\d+ or more"):
        shared(pages | kept | {"tiers.low.admitted_below": 0.001})
    with pytest.raises(SiteError, match="no model counts that"):
        shared(kept)
    for other in ({f"models.{MODEL}.pool.queues": True}, {f"models.{MODEL}.overflow": {"to": LONG}}):
        with pytest.raises(SiteError, match=r"what the replicas have no room for, before"):
            shared(pages | other)
    with pytest.raises(SiteError, match="needs a gatekeeper"):
        shared(pages | {"callers.decided_by": "gateway"})
