"""What tenants' own prompt caches cost: the bound against a simulated cache, and what a site shows of it."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import replace

import pytest

from stacks.plan.site_plan import SitePlan, plan_values
from stacks.proof.layouts import Layout
from stacks.proof.offload import gpu_kept_s
from stacks.proof.proof import prove
from stacks.proof.tenant_caches import TenantCaches, tenant_caches
from tests.unit.proof.proof_orders import CHAT, TARGETS, order
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("opening 18")

MODEL = "qwen3-32b"
MANY, COMMON = 2_000, 0.4


def counted(caches: int) -> TenantCaches:
    load = replace(CHAT, common_prefix=COMMON)
    proof = prove(order("qwen3-32b-fp8", load=load, slo=TARGETS, replicas=1, layout=Layout()))
    figures = tenant_caches(proof.case, caches)
    assert figures is not None
    return figures


def simulated(caches: int, *, requests: int = 400_000) -> float:
    """Share of requests whose tenant's prefix a cache has dropped, least recently used first, one replica.

    The rest of a request is new to it: half of the prompt, of which the cache then has so much less room, and the
    answer. A prefix takes room as well.
    """
    proof = prove(order("qwen3-32b-fp8", load=CHAT, slo=TARGETS, replicas=1, layout=Layout()))
    new = CHAT.prompt_tokens.mean * (1 - CHAT.prefix_hit) + CHAT.answer_tokens.mean
    room = gpu_kept_s(proof.case) * CHAT.requests_per_s * new
    kept: OrderedDict[tuple[str, int], float] = OrderedDict()
    chosen = random.Random(7)  # noqa: S311 - a repeatable order
    used, missed, counted_from = 0.0, 0, requests // 4
    for number in range(requests):
        prefix = ("tenant", chosen.randrange(caches))
        if prefix in kept:
            kept.move_to_end(prefix)
        else:
            missed += number >= counted_from
            kept[prefix] = CHAT.prompt_tokens.mean * COMMON
            used += kept[prefix]
        kept["rest", number] = new
        used += new
        while used > room:
            used -= kept.popitem(last=False)[1]
    return missed / (requests - counted_from)


@pytest.mark.parametrize("caches", [200, MANY])
def test_the_share_that_is_lost_is_that_of_a_simulated_cache(caches: int) -> None:
    assert counted(caches).lost / COMMON == pytest.approx(simulated(caches), abs=0.02)


def test_more_caches_lose_more_and_never_more_than_is_in_common() -> None:
    lost = [counted(caches).lost for caches in (2, 200, MANY, 10**7)]
    assert lost == sorted(lost)
    assert lost[0] < 0.001 < lost[1]
    assert lost[-1] == pytest.approx(COMMON, rel=0.01)


def planned(tenants: int, *, share: bool = False, gatekeeper: bool = True) -> SitePlan:
    how = {"prefix_cache": "shared"} if share else {}
    return plan_values(
        changed(
            prod(),
            {
                "callers": {"decided_by": "gatekeeper"} if gatekeeper else {},
                f"models.{MODEL}.load.common_prefix": 0.3,
                "tenants": {f"t{number}": {"models": [MODEL], "keys": {"k": {}}, **how} for number in range(tenants)},
            },
        ),
        "Pulumi.prod.yaml",
    )


@pytest.mark.slow
def test_a_site_shows_what_isolation_costs_and_its_proof_pays_it() -> None:
    """Red without the second proof: the figures that the site's settings follow from would count on lost hits."""
    few, many = planned(2).named[MODEL], planned(2_000).named[MODEL]
    assert "it costs nothing: a prefix stays for" in few.text()
    assert few.proof.order.load == planned(2, share=True).named[MODEL].proof.order.load
    assert many.apart is not None
    assert many.proof.order.load is not None
    assert many.proof.order.load.prefix_hit == pytest.approx(0.3 - many.apart.caches.lost)
    for key, more in (("ttft_p95", True), ("capacity", False)):
        assert (many.proof.serving[key].value > many.apart.together.serving[key].value) is more, key
    line = next(line for line in many.text().splitlines() if line.strip().startswith("caches"))
    assert "2,000 side by side, so no tenant finds what another one asked; up to " in line
    assert "TTFT p95" in line
    assert "EUR/M tokens in place of" in line


@pytest.mark.slow
def test_tenants_that_share_and_sites_without_a_gatekeeper_lose_nothing() -> None:
    for plan in (planned(2_000, share=True), planned(2_000, gatekeeper=False)):
        assert plan.named[MODEL].apart is None


def test_what_is_in_common_is_a_part_of_the_hits() -> None:
    place = f"models.{MODEL}.load.common_prefix"
    refused_and_fixed(Wrong({place: 0.5}, place, "is more than prefix_hit", {place: 0.3}))
