"""By how much budgets of money are exceeded: the figures of a site, each recomputed from its parts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stacks.plan.limits import under_way
from stacks.plan.overspending import LAG_S, overspendings
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import ROOT, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("001.14", "opening 16")

CHEAP = {"input": 0.5, "output": 1.5}
BUDGET: dict[str, Any] = {
    "callers.decided_by": "gatekeeper",
    "usage": {
        "database_secret": "usage-database",
        "prices": [
            {"since": "2026-01-01", "models": {"qwen3-32b": CHEAP | {"output": 2.0}, "glm-5-1": CHEAP}},
            {"since": "2026-02-01", "models": {"qwen3-32b": CHEAP, "glm-5-1": CHEAP}, "tiers": {"batch": 0.5}},
        ],
    },
    "tenants.archive.limits": {"spend_per_month": 40.0},
}


def planned(**limits: int) -> SitePlan:
    archive = BUDGET["tenants.archive.limits"] | limits
    return plan_values(changed(prod(), BUDGET | {"tenants.archive.limits": archive}), "site.yaml")


def test_a_preview_states_by_how_much_a_budget_can_be_exceeded() -> None:
    """Of the one model of the tenant: all that its engines take at once, and what begins until the ledger is heard.

    At the highest price that its tokens have had; without the factor of a tier that came with a lower one.
    """
    plan = planned()
    revision = plan.named["qwen3-32b"]
    held, load = under_way(revision), revision.proof.order.load
    assert load is not None
    (tenant, over), *others = overspendings(plan.site, plan.models).items()
    assert (tenant, others, over.price, over.budget) == ("archive", [], 2.0, 40.0)
    requests = held.answers + LAG_S * load.requests_per_s
    assert over.most == pytest.approx(requests * held.most_tokens * 2.0 / 1e6)
    assert over.usual == pytest.approx(requests * held.usual_tokens * 2.0 / 1e6)
    assert f"archive: 40.00 EUR by up to {over.most:,.2f}, ({held.answers:,} under way + 10 s x " in plan.limits_text
    assert plan_values(prod(), "site.yaml").limits_text == ""


def test_bounds_of_a_tenant_lower_what_its_budget_can_be_exceeded_by() -> None:
    plan = planned(parallel_requests=3, max_answer_tokens=500, max_prompt_tokens=1000, requests_per_minute=6)
    over = overspendings(plan.site, plan.models)["archive"]
    request = plan.named["qwen3-32b"].server.max_model_len + 500
    assert over.under_way == 3
    assert over.requests_per_s == pytest.approx(0.1)
    assert over.most == pytest.approx((3 + LAG_S * 0.1) * request * 2.0 / 1e6)


def test_the_page_has_the_formula_of_the_preview() -> None:
    page = (ROOT / "docs" / "how-to" / "limit-tenants.md").read_text()
    stated = re.search(r"\(requests under way \+ (\d+) s x requests per second\) x largest request x price", page)
    assert stated and float(stated[1]) == LAG_S
