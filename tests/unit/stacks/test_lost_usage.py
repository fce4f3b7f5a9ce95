"""What a preview states of the rows that a fault takes from the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from services.ledger import variables
from stacks.plan.lost_usage import HELD_H, LINE_BYTES, describe_lost_usage, loss_of_a_pod
from stacks.plan.site_plan import SitePlan, plan_values
from tests import documented
from tests.unit.stacks.site_examples import ROOT, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 17")

LEDGER = {"usage": {"database_secret": "usage-database"}}


def planned(pods: int = 2, **more: object) -> SitePlan:
    return plan_values(changed(prod(), {**LEDGER, "gateway.replicas": pods, **more}), "site.yaml")


def test_open_requests_are_those_of_the_engines_over_the_pods() -> None:
    """By Little's law: rate times mean time to answer, of both models."""
    plan = planned()
    loss = loss_of_a_pod(plan.site, plan.models)
    assert loss is not None
    expected = 0.0
    for proof in plan.proofs.values():
        load, serving = proof.order.load, proof.serving
        assert load is not None
        tokens_ms = load.answer_tokens.mean * serving["itl_mean"].value
        expected += load.requests_per_s * (serving["ttft_mean"].value + tokens_ms) / 1000
    assert loss.open_usual == pytest.approx(expected / 2, rel=0.01)
    assert loss.open_most == sum(revision.parallel_requests for revision in plan.revisions)
    assert loss.requests_per_s == pytest.approx((0.7 + 4.0) / 2)


def test_requests_without_answer_tokens_are_open_too() -> None:
    def usual(rate: float) -> float:
        words = {"catalogue": "qwen3-embedding-8b", "server": {"replicas": 1}, "load": {"requests_per_s": rate}}
        plan = plan_values(changed(prod(), {**LEDGER, "models.qwen3-32b": words}), "site.yaml")
        loss = loss_of_a_pod(plan.site, plan.models)
        return loss.open_usual if loss else 0.0

    assert usual(10) > usual(1) + 0.1


def test_a_canary_adds_no_requests_and_dedicated_replicas_do() -> None:
    canary: dict[str, Any] = {"models.qwen3-32b.canary": {"percent": 50, "server": {"replicas": 1}}}
    own = {"tenants": ["search"], "server": {"replicas": 1}, "load": {"requests_per_s": 0.1}}
    dedicated: dict[str, Any] = {"models.qwen3-32b.dedicated": {"own": own}}
    for change, rate in ((canary, 4.7), (dedicated, 4.8)):
        keys = {**LEDGER, "gateway.replicas": 2, "callers": {"decided_by": "gatekeeper"}, **change}
        plan = plan_values(changed(prod(), keys), "site.yaml")
        loss = loss_of_a_pod(plan.site, plan.models)
        assert loss is not None
        assert loss.requests_per_s == pytest.approx(rate / 2)


def test_lines_of_a_day_have_room_with_a_pod_fewer() -> None:
    """At any load in few sizes, and no less than a GiB."""

    def room(rate: float, pods: int) -> int:
        words = {"catalogue": "qwen3-embedding-8b", "server": {"replicas": 1}, "load": {"requests_per_s": rate}}
        plan = planned(pods, **{"models.qwen3-32b": words})
        loss = loss_of_a_pod(plan.site, plan.models)
        assert loss is not None
        left = pods - 1 or 1
        assert loss.log_hours * 3600 * LINE_BYTES * loss.requests_per_s * pods / left == pytest.approx(
            loss.log_gib * 2**30 * 0.9
        )
        assert loss.log_hours >= HELD_H
        return loss.log_gib

    assert [room(0.01, 2), room(20, 1), room(20, 2), room(20, 3), room(60, 2)] == [1, 2, 2, 1, 4]


def test_more_pods_lose_less_each_and_a_site_without_a_ledger_has_no_such_block() -> None:
    two, four = (loss_of_a_pod(plan.site, plan.models) for plan in (planned(2), planned(4)))
    assert two is not None and four is not None
    assert four.open_usual == pytest.approx(two.open_usual / 2)
    text = describe_lost_usage((plan := planned()).site, plan.models)
    assert text in plan.texts
    fences = documented.fences(ROOT / "docs" / "how-to" / "usage-and-bills.md")
    assert text in [shown.rstrip("\n") for _, shown in fences], "the page shows the reference site's"
    assert f"of its last {variables.FLUSH_S:g} s: " in text
    without = plan_values(prod(), "site.yaml")
    assert describe_lost_usage(without.site, without.models) == ""
