"""Which orders the policy of a site approves, and which are for a person."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.order_policy import why_a_person
from stacks.plan.site_plan import plan_values
from tests.unit.sitectl.test_sitectl_order import MODEL, SERVED
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = [pytest.mark.row("000.37"), pytest.mark.row("003.01")]


def why(values: dict[str, Any], model: str, tenant: str, serve: dict[str, Any] | None = None) -> str:
    """serve: what the order adds to the site's models."""
    models = [*values["tenants"][tenant]["models"], model]
    order = {f"tenants.{tenant}.models": models} | ({f"models.{model}": serve} if serve else {})
    before = plan_values(values, "site.yaml")
    return why_a_person(plan_values(changed(values, order), "site.yaml"), before, model, tenant)


@pytest.mark.parametrize(
    ("policy", "tenant", "reason"),
    [
        ({"most_gpus": 4}, "search", ""),
        ({"most_gpus": 3}, "search", "it takes 4 GPUs, and order_policy.most_gpus is 3"),
        ({"most_gpus": 4, "keep_free_gpus": 8}, "search", ""),
        (
            {"most_gpus": 4, "keep_free_gpus": 9},
            "search",
            "8 GPUs would stay free, and order_policy.keep_free_gpus is 9",
        ),
        ({"most_gpus": 4, "tenants": ["archive"]}, "search", "order_policy is not for search"),
        (None, "search", "the site has no order_policy"),
    ],
)
def test_what_the_policy_does_not_approve_is_for_a_person(
    policy: dict[str, Any] | None, tenant: str, reason: str
) -> None:
    model = {"catalogue": "llama-3.3-70b-fp8", "load": {"requests_per_s": 2}}
    shown = why(prod() if policy is None else changed(prod(), {"order_policy": policy}), MODEL, tenant, model)
    assert (shown.endswith(reason), bool(shown)) == (True, bool(reason))


def test_a_model_that_is_served_takes_no_gpus_and_an_uncertain_one_is_for_a_person() -> None:
    assert why(changed(prod(), {"order_policy": {}}), SERVED, "archive") == ""
    uncertain = {"catalogue": "llama-3.3-70b-fp8", "load": {"requests_per_s": 3.0}}
    shown = why(changed(prod(), {"order_policy": {"most_gpus": 64}}), MODEL, "search", uncertain)
    assert shown.startswith(
        f"it adds a warning: models.{MODEL}.load holds by the computed figures, but not at the slow"
    )


def test_an_order_that_adds_a_warning_is_for_a_person() -> None:
    """Here of another tenant's guarantee; the same key warns of another model already."""
    limits = {"guaranteed_tokens_per_minute": 1000, "tokens_per_minute": 5000}
    guaranteed = {"tenants.search.limits": limits, "tenants.archive.tier": "interactive", "order_policy": {}}
    shown = why(changed(prod(), guaranteed), SERVED, "archive")
    assert shown.startswith("it adds a warning: tenants.archive what search is guaranteed on glm-5-1 is kept only")


def test_tenants_of_the_policy_are_those_of_the_site() -> None:
    change = {"order_policy": {"tenants": ["serach"]}}
    refused_and_fixed(
        Wrong(change, "order_policy.tenants.0", "is no tenant", {"order_policy": {"tenants": ["search"]}})
    )
