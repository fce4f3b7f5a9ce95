"""What tenants are guaranteed is no more than their models are proven to carry, and each fix leads to a valid site."""

from __future__ import annotations

import re
from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("004.22", "opening 6", "opening 16")

KEY = "guaranteed_tokens_per_minute"
OWN = f"tenants.archive.limits.{KEY}"


def planned(*changes: dict[str, Any]) -> SitePlan:
    site = prod()
    for change in changes:
        changed(site, change)
    return plan_values(site, "site.yaml")


@pytest.fixture(scope="module")
def most() -> int:
    """Tokens per minute that qwen3-32b carries at the slow end: requests x tokens of a mean one."""
    proof = planned().proofs["qwen3-32b"]
    span, load = proof.serving["capacity"].span, proof.order.load
    assert span and span.slow and load
    return int(60 * span.slow * (load.prompt_tokens.mean + load.answer_tokens.mean))


def refused(*changes: dict[str, Any]) -> SiteError:
    with pytest.raises(SiteError) as caught:
        planned(*changes)
    return caught.value


def test_guarantees_may_take_all_that_a_model_carries_and_no_more(most: int) -> None:
    """Of all tenants that may use it, a plan's once for each of them. The fix may be either of the two."""
    third = most // 3
    plan = {
        "plans": {"gold": {KEY: third}},
        "tenants.search": {"models": ["qwen3-32b"], "plan": "gold", "keys": {"a": {}}},
        "tenants.index": {"models": ["qwen3-32b"], "plan": "gold", "keys": {"a": {}}},
    }
    assert planned(plan, {OWN: most - 2 * third}).site.guarantees.keys() == {"archive", "index", "search"}
    error = refused(plan, {OWN: most - 2 * third + 3})
    (problem,) = error.problems
    assert problem.path == ("plans", "gold", KEY)
    for words in (f"{most + 3:,} tokens", f"search {third:,}", f"archive {most - 2 * third + 3:,}", f"carry {most:,}"):
        assert words in problem.what
    lower, replicas = re.findall(r"lower (\S+) to (\d+)|raise (\S+) from \d+ to (\d+)", problem.fix)
    assert planned(plan, {OWN: most - 2 * third + 3}, {lower[0]: int(lower[1])})
    assert planned(plan, {OWN: most - 2 * third + 3}, {replicas[2]: int(replicas[3])})
    assert int(lower[1]) == third - 2


def test_a_guarantee_counts_in_full_on_each_model_of_its_tenant(most: int) -> None:
    """A tenant decides which of them it uses, so the slower one decides."""
    (problem,) = refused({f"tenants.search.limits.{KEY}": most}).problems
    assert "on glm-5-1" in problem.what
    assert problem.fix.startswith(f"lower tenants.search.limits.{KEY} to ")
    assert problem.fix.endswith("with more nodes for them")


def test_nothing_is_guaranteed_of_a_model_without_a_load() -> None:
    change = {OWN: 5, "models.qwen3-32b.load": None, "models.qwen3-32b.slo": None}
    (problem,) = refused(change).problems
    assert problem.key == OWN
    assert "declares no load" in problem.what


def test_a_preview_warns_of_guarantees_that_others_can_take() -> None:
    """Nothing is kept free for one: others have limits, or give way by their tier."""
    guaranteed: dict[str, Any] = {f"tenants.search.limits.{KEY}": 1000}

    def warned(*changes: dict[str, Any]) -> list[str]:
        return [warning.key for warning in planned(guaranteed, *changes).warnings if "guaranteed" in warning.what]

    assert warned() == []
    assert warned({"tenants.archive.tier": "interactive"}) == ["tenants.archive"]
    assert warned({"tenants.archive.tier": "interactive", "tenants.archive.limits": {"tokens_per_minute": 9000}}) == []
    # Of two without limits, each may take the room of the other; and one that gives way has no guarantee.
    assert warned({OWN: 5}) == ["tenants.archive", "tenants.archive.tier"]
