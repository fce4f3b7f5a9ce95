"""Limits that would count nothing, or that no plan sets: each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("004.03")

WRONG: dict[str, Wrong] = {
    "plan that the site has not": Wrong(
        {"plans": {"small": {"tokens_per_day": 5}}, "tenants.search.plan": "smal"},
        "tenants.search.plan",
        "write small",
        {"tenants.search.plan": "small"},
    ),
    "plan without a limit": Wrong(
        {"plans": {"small": {}}}, "plans.small", "sets no limit", {"plans.small": {"tokens_per_day": 5}}
    ),
    "limit that nothing counts": Wrong(
        {"gateway.controllers": "external", "tenants.search.limits": {"tokens_per_day": 5}},
        "tenants.search.limits",
        "leaves Envoy Gateway's configuration to others",
        {"gateway.controllers": "chart"},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_limit_that_would_not_hold_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_a_tenants_own_limit_is_in_the_place_of_its_plans() -> None:
    """And the images that count are the site's only where a tenant has a limit."""
    plain = plan_values(prod(), "site.yaml")
    plans = {"small": {"tokens_per_day": 5, "requests_per_minute": 9}}
    own = {"tenants.search.plan": "small", "tenants.search.limits": {"tokens_per_day": 7}}
    limited = plan_values(changed(prod(), {"plans": plans, **own}), "site.yaml")
    assert limited.site.limits == {"search": {"requests_per_minute": 9, "tokens_per_day": 7}}
    pins = limited.versions.images
    assert set(limited.images) - set(plain.images) == {pins.limit_service, pins.limit_counters}


@pytest.mark.parametrize(
    ("change", "key", "fixed"),
    [
        pytest.param(
            {"plans": {"small": {"tokens_per_hour": 9, "guaranteed_tokens_per_minute": 12}}},
            "plans.small.guaranteed_tokens_per_minute",
            9,
            id="a plan's own",
        ),
        pytest.param(
            {
                "plans": {"small": {"tokens_per_minute": 20, "guaranteed_tokens_per_minute": 12}},
                "tenants.search.plan": "small",
                "tenants.search.limits": {"tokens_per_minute": 9},
            },
            "tenants.search.limits.tokens_per_minute",
            12,
            id="a tenant's limit in the place of its plan's",
        ),
        pytest.param(
            {
                "plans": {"small": {"tokens_per_minute": 20, "tokens_per_day": 9}},
                "tenants.search.plan": "small",
                "tenants.search.limits": {"guaranteed_tokens_per_minute": 12},
            },
            "tenants.search.limits.guaranteed_tokens_per_minute",
            9,
            id="a tenant's guarantee above its plan's limit",
        ),
    ],
)
@pytest.mark.row("opening 16")
def test_no_tenant_is_guaranteed_more_than_it_may_use(change: dict[str, Any], key: str, fixed: int) -> None:
    refused_and_fixed(Wrong(change, key, f"write {fixed} or", {key: fixed}))
