"""Limits that would count nothing, or that no plan sets: each is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from components.specs.limits import MOST_COUNTED
from components.tenants.callers import tenants_file
from components.tenants.limits import rate_limit
from floor.headers import CLIENT_HEADER, MODEL_HEADER, TENANT_HEADER
from stacks.plan.site_plan import plan_values
from tests import documented
from tests.unit.stacks.site_examples import ROOT, prod
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
    "limit that lets nothing pass": Wrong(
        {"tenants.search.limits": {"tokens_per_day": 0}},
        "tenants.search.limits.tokens_per_day",
        f"out of range; got 0; allowed: a whole number from 1 to {MOST_COUNTED}",
        {"tenants.search.limits.tokens_per_day": 1},
    ),
    "limit of a model that the tenant may not call": Wrong(
        {"tenants.archive.model_limits": {"glm-5-1": {"tokens_per_day": 5}}},
        "tenants.archive.model_limits.glm-5-1",
        "may not call",
        {"tenants.archive.models": ["qwen3-32b", "glm-5-1"]},
    ),
    "limit of a key above its tenant's": Wrong(
        {
            "plans": {"small": {"tokens_per_day": 5}},
            "tenants.search.plan": "small",
            "tenants.search.keys.assistant.limits": {"tokens_per_day": 6, "tokens_per_hour": 9},
        },
        "tenants.search.keys.assistant.limits.tokens_per_day",
        "write 5 or less",
        {"tenants.search.keys.assistant.limits.tokens_per_day": 5},
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


def test_limits_of_keys_and_models_are_counted_beside_their_tenants() -> None:
    """By rules of their own, which refuse no one without a number, behind those that were there before."""
    blocks = [content for _, content in documented.fences(ROOT / "docs" / "how-to" / "limit-tenants.md")]
    (shown,) = (yaml.safe_load(content) for content in blocks if "model_limits" in content)
    whole = {"tenants.archive.limits": {"requests_per_minute": 9}}
    site = plan_values(changed(prod(), {"tenants.search": shown["tenants"]["search"], **whole}), "site.yaml").site
    assert site.limits == {
        "archive": {"requests_per_minute": 9},
        "search": {
            "keys.assistant.requests_per_minute": 300,
            "keys.assistant.tokens_per_day": 20_000_000,
            "models.glm-5-1.tokens_per_minute": 400_000,
        },
    }
    rules = rate_limit(site.limits)["global"]["rules"]
    counted = [
        (rule["limit"]["fromMetadata"]["key"], rule["limit"]["requests"], [header["name"] for header in headers])
        for rule in rules
        for headers in [rule["clientSelectors"][0]["headers"]]
    ]
    assert counted == [
        ("requests_per_minute", 9, [TENANT_HEADER]),
        ("key.requests_per_minute", MOST_COUNTED, [CLIENT_HEADER]),
        ("key.tokens_per_day", MOST_COUNTED, [CLIENT_HEADER]),
        ("models.glm-5-1.tokens_per_minute", MOST_COUNTED, [TENANT_HEADER, MODEL_HEADER]),
    ]
    assert ["cost" in rule for rule in rules] == [False, False, True, True]
    units = json.loads(tenants_file(site.tenants, limits=site.limits))["tenants"]["search"]["limits"]
    assert units["keys.assistant.tokens_per_day"] == {"requests_per_unit": 20_000_000, "unit": "DAY"}


@pytest.mark.parametrize(
    ("change", "key", "fixed"),
    [
        pytest.param(
            {"plans": {"small": {"tokens_per_hour": 540, "guaranteed_tokens_per_minute": 12}}},
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
                "plans": {"small": {"tokens_per_minute": 20, "tokens_per_day": 12960}},
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


@pytest.mark.row("opening 16")
@pytest.mark.parametrize(
    ("of_plan", "key", "fix"),
    [
        (False, "limits.guaranteed_tokens_per_minute", {"limits.guaranteed_tokens_per_minute": 9}),
        (True, "model_limits", {"limits": {"guaranteed_tokens_per_minute": 9}}),
        (True, "model_limits", {"model_limits.qwen3-32b.tokens_per_minute": 7}),
        (True, "model_limits", {"model_limits": {"glm-5-1": {"tokens_per_hour": 300}}}),
    ],
)
def test_limits_of_models_leave_room_for_a_guarantee(*, of_plan: bool, key: str, fix: dict[str, Any]) -> None:
    """Those of all models of a tenant together; one without a limit leaves any."""
    guarantee = {"guaranteed_tokens_per_minute": 12}
    limits = {"glm-5-1": {"tokens_per_hour": 300}, "qwen3-32b": {"tokens_per_minute": 4, "tokens_per_day": 10**6}}
    change: dict[str, Any] = {"tenants.search.limits": guarantee}
    if of_plan:
        change = {"plans": {"small": guarantee}, "tenants.search.plan": "small"}
    words = "raise them by 3 tokens_per_minute together, or write 9 or less into tenants.search.limits."
    fixed = {f"tenants.search.{path}": value for path, value in fix.items()}
    refused_and_fixed(Wrong({**change, "tenants.search.model_limits": limits}, f"tenants.search.{key}", words, fixed))
