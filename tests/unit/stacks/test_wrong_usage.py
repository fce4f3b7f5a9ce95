"""Price books that charge for nothing, twice, or what no one meant: each is refused, and what is free is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("000.35")

PRICE = {"input": 0.2, "cached_input": 0.05, "output": 0.8}
MODELS = {"glm-5-1": PRICE, "qwen3-32b": PRICE}


def usage(*versions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"usage": {"database_secret": "usage-database", "prices": list(versions), **more}}


def since(day: str, models: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"since": day, "models": models or MODELS, **more}


DECIDED: dict[str, Any] = {"callers": {"decided_by": "gatekeeper"}}
ONE = since("2026-12-01", {"glm-5-1": PRICE})
FIRST, NEXT = since("2026-12-01"), since("2027-01-01")
WRONG: dict[str, Wrong] = {
    "prices that no ledger reads": Wrong(
        {"usage": {"prices": [FIRST]}},
        "usage",
        "without database_secret no ledger runs",
        {"usage.database_secret": "usage-database"},
    ),
    "days out of order": Wrong(usage(NEXT, FIRST), "usage", "2026-12-01 behind 2027-01-01", usage(FIRST, NEXT)),
    "a day twice": Wrong(usage(FIRST, FIRST), "usage", "2026-12-01 twice", usage(FIRST, NEXT)),
    "no day": Wrong(
        usage(since("2026-02-30")), "usage.prices.0.since", "is no day", {"usage.prices.0.since": "2026-02-28"}
    ),
    "too fine a price": Wrong(
        usage(since("2026-12-01", MODELS | {"glm-5-1": {"input": 0.0000005, "output": 1}})),
        "usage.prices.0.models.glm-5-1.input",
        "finer than a millionth",
        {"usage.prices.0.models.glm-5-1.input": 0.000001},
    ),
    "a price below nothing": Wrong(
        usage(since("2026-12-01", MODELS | {"glm-5-1": {"input": -1, "output": 1}})),
        "usage.prices.0.models.glm-5-1.input",
        "",
        {"usage.prices.0.models.glm-5-1.input": 1},
    ),
    "a model that is not served": Wrong(
        usage(FIRST, since("2027-01-01", MODELS | {"qwen3-23b": PRICE})),
        "usage.prices.1.models.qwen3-23b",
        "did you mean 'qwen3-32b'?",
        {"usage.prices.1.models.qwen3-23b": None},
    ),
    "a tier that there is not": Wrong(
        usage(since("2026-12-01", tiers={"nightly": 0.5}), NEXT),
        "usage.prices.0.tiers.nightly",
        "among its tiers",
        {"usage.prices.0.tiers": {"batch": 0.5}},
    ),
    "a budget without a ledger": Wrong(
        DECIDED | {"tenants.search.limits": {"tokens_per_month": 5}},
        "tenants.search.limits.tokens_per_month",
        "what the ledger counts, and none runs",
        {"usage.database_secret": "usage-database"},
    ),
    "a budget that no one holds": Wrong(
        usage(FIRST) | {"plans": {"small": {"spend_per_month": 5}}},
        "plans.small.spend_per_month",
        "needs a gatekeeper",
        DECIDED,
    ),
    "a budget of what has no price": Wrong(
        {**DECIDED, **usage(ONE), "plans": {"small": {"spend_per_month": 5}}, "tenants.search.plan": "small"},
        "plans.small.spend_per_month",
        "counts nothing of qwen3-32b,",
        {"usage.prices.0.models": MODELS},
    ),
    "a tenant's own budget of what has no price": Wrong(
        {**DECIDED, **usage(), "tenants.archive.limits": {"spend_per_month": 5.5}},
        "tenants.archive.limits.spend_per_month",
        "counts nothing of qwen3-32b,",
        {"usage.prices": [FIRST]},
    ),
    "a budget finer than what is counted": Wrong(
        {**DECIDED, **usage(FIRST), "tenants.archive.limits": {"spend_per_month": 0.0000005}},
        "tenants.archive.limits.spend_per_month",
        "finer than a millionth",
        {"tenants.archive.limits.spend_per_month": 0.000001},
    ),
    "idle GPUs without a price": Wrong(
        {**usage(FIRST, idle_share=0.5), "prices": None},
        "usage.idle_share",
        "sets no price of them",
        {"prices": {"gpu_hour": 2.5}},
    ),
    "idle GPUs in another currency": Wrong(
        {**usage(FIRST, idle_share=0.5, currency="CHF"), "prices": {"gpu_hour": 2.5}},
        "usage.idle_share",
        "prices.currency EUR, usage.currency CHF",
        {"prices.currency": "CHF"},
    ),
    "more than what idle GPUs cost": Wrong(
        {**usage(FIRST, idle_share=1.5), "prices": {"gpu_hour": 2.5}},
        "usage.idle_share",
        "",
        {"usage.idle_share": 1},
    ),
    "keys that are watched and no ledger": Wrong(
        {"usage": {"abuse": {}}},
        "usage",
        "abuse set, and without database_secret no ledger runs",
        {"usage.database_secret": "usage-database"},
    ),
    "keys that no one suspends": Wrong(
        DECIDED | usage(FIRST, abuse={"suspend_on": ["networks"]}),
        "usage.abuse.suspend_on",
        "which takes both",
        {"callers.database_secret": "directory-database"},
    ),
    "a key that is spared of a tenant that there is not": Wrong(
        usage(FIRST, abuse={"never_suspended": ["search.ci", "serch.ci"]}),
        "usage.abuse.never_suspended.1",
        "which is no tenant of this site",
        {"usage.abuse.never_suspended": ["search.ci"]},
    ),
    "a signal that there is not": Wrong(
        {"callers": DECIDED["callers"] | {"database_secret": "keys"}} | usage(FIRST, abuse={"suspend_on": ["network"]}),
        "usage.abuse.suspend_on.0",
        "",
        {"usage.abuse.suspend_on": []},
    ),
    "all keys suspended at once": Wrong(
        usage(FIRST, abuse={"most_suspended_per_hour": 1000}),
        "usage.abuse.most_suspended_per_hour",
        "",
        {"usage.abuse.most_suspended_per_hour": 20},
    ),
    "Envoy pods that are others'": Wrong(
        usage(FIRST) | {"gateway.controllers": "external"},
        "usage.database_secret",
        "namespace is not known",
        {"gateway.controllers": "chart"},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_prices_are_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


@pytest.mark.row("001.40")
def test_a_plan_has_a_budget_and_a_tenant_its_own_in_its_place() -> None:
    """A limit of tokens holds for what is free; no limit service is needed for either."""
    plans = {"small": {"tokens_per_month": 5 * 10**9, "spend_per_month": 20}}
    tenants = {"tenants.search.plan": "small", "tenants.search.limits": {"spend_per_month": 7.5}}
    free = {"tenants.archive.limits": {"tokens_per_month": 8}}
    site = plan_values(changed(prod(), {**DECIDED, **usage(FIRST), "plans": plans, **tenants, **free}), "site").site
    assert site.budgets == {
        "archive": {"tokens_per_month": 8},
        "search": {"tokens_per_month": 5 * 10**9, "spend_per_month": 7.5},
    }
    assert not site.limits_tenants


def test_what_is_served_for_nothing_is_a_warning() -> None:
    """By the newest version; an earlier one may have prices of what is served no longer."""

    def warned(*versions: dict[str, Any]) -> list[str]:
        plan = plan_values(changed(prod(), usage(*versions)), "site.yaml")
        return [problem.what for problem in plan.warnings if problem.path[0] == "usage"]

    retired = since("2026-12-01", MODELS | {"llama-1": PRICE})
    assert warned(retired, NEXT) == warned() == []
    (only,) = warned(FIRST, since("2027-01-01", {"glm-5-1": PRICE}))
    assert "qwen3-32b" in only


@pytest.mark.row("004.04")
def test_networks_that_are_not_seen_are_a_warning() -> None:
    """Where no gatekeeper names them, and where clients' addresses are hidden."""

    def warned(**more: Any) -> list[str]:
        plan = plan_values(changed(prod(), usage(FIRST, abuse={}) | more), "site.yaml")
        return [".".join(problem.path) for problem in plan.warnings if "network" in problem.what]

    policy = "gateway.external_traffic_policy"
    local = {policy: "Local", "addresses": None, "gateway.address": None}
    assert warned(**local) == ["usage.abuse"]
    assert warned(**DECIDED, **local) == []
    assert warned(**DECIDED) == [policy]
