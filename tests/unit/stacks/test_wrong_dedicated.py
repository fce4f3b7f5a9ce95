"""Dedicated replicas that would answer no tenant, or that the site cannot have: each is refused at its own key."""

from __future__ import annotations

import pytest

from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.10")

D = "models.qwen3-32b.dedicated"
DECIDED = {"callers": {"decided_by": "gatekeeper"}}
ONE = {"replicas": 1}
LONG = "a-model-whose-name-is-of-forty-letters-x"
FOR_SEARCH = {"tenants": ["search"], "server": ONE}
WRONG: dict[str, Wrong] = {
    "no gatekeeper": Wrong({D: {"own": FOR_SEARCH}}, D, "needs the gatekeeper", DECIDED),
    "tenant that is none": Wrong(
        {**DECIDED, D: {"own": {"tenants": ["serch"], "server": ONE}}},
        f"{D}.own.tenants.0",
        "did you mean 'search'",
        {f"{D}.own.tenants": ["search"]},
    ),
    "tenant that may not call it": Wrong(
        {**DECIDED, D: {"own": FOR_SEARCH}, "tenants.search.models": ["glm-5-1"]},
        f"{D}.own.tenants.0",
        "may not call qwen3-32b",
        {"tenants.search.models": ["glm-5-1", "qwen3-32b"]},
    ),
    "no replica": Wrong(
        {**DECIDED, D: {"own": {"tenants": ["search"], "server": {"replicas": 0}}}},
        f"{D}.own.server.replicas",
        "a whole number from 1",
        {f"{D}.own.server.replicas": 1},
    ),
    "tenant with two": Wrong(
        {**DECIDED, D: {"first": FOR_SEARCH, "second": {"tenants": ["archive", "search"], "server": ONE}}},
        f"{D}.second.tenants.1",
        "already, in models.qwen3-32b.dedicated.first",
        {f"{D}.second.tenants": ["archive"]},
    ),
    "tenant that is pinned": Wrong(
        {
            **DECIDED,
            D: {"own": FOR_SEARCH},
            "models.qwen3-32b.canary": {"percent": 5, "pinned": {"search": "stable"}, "server": {"gpus": 2}},
        },
        "models.qwen3-32b.canary.pinned.search",
        "has replicas of its own",
        {"models.qwen3-32b.canary.pinned": {}},
    ),
    "name of a picker": Wrong(
        {**DECIDED, D: {"a": FOR_SEARCH, "a-epp": {"tenants": ["archive"], "server": ONE}}},
        f"{D}.a-epp",
        "has the name of the endpoint picker",
        {D: {"a": FOR_SEARCH}},
    ),
    "name too long for a Service": Wrong(
        {
            **DECIDED,
            f"models.{LONG}": {"catalogue": "qwen3-32b-fp8"},
            "tenants.search.models": [LONG],
            f"models.{LONG}.dedicated": {"x" * 14: FOR_SEARCH},
        },
        f"models.{LONG}.dedicated.{'x' * 14}",
        "is too long a name",
        {f"models.{LONG}.dedicated": {"x" * 13: FOR_SEARCH}},
    ),
    "too few for their load": Wrong(
        {**DECIDED, D: {"own": {**FOR_SEARCH, "load": {"requests_per_s": 90}}}},
        f"{D}.own.server.replicas",
        "does not keep its targets",
        {f"{D}.own.load.requests_per_s": 0.1},
    ),
    "every prompt from the cache": Wrong(
        {**DECIDED, D: {"own": {**FOR_SEARCH, "load": {"requests_per_s": 0.1, "prefix_hit": 1}}}},
        f"{D}.own.load.prefix_hit",
        "counts every prompt as computed before",
        {f"{D}.own.load.prefix_hit": 0.5},
    ),
    "more in common than in the cache": Wrong(
        {**DECIDED, D: {"own": {**FOR_SEARCH, "load": {"requests_per_s": 0.1, "common_prefix": 0.9}}}},
        f"{D}.own.load.common_prefix",
        "is more than prefix_hit",
        {f"{D}.own.load.common_prefix": 0.1},
    ),
    "more than the nodes hold": Wrong(
        {**DECIDED, D: {"own": {"tenants": ["search"], "server": {"replicas": 30}}}},
        f"{D}.own.server.replicas",
        "find no room",
        {f"{D}.own.server.replicas": 2},
    ),
    "model called like them": Wrong(
        {"models.qwen3--for-search": {"catalogue": "qwen3-32b-fp8"}},
        "models.qwen3--for-search",
        "has the form in which further revisions",
        {"models.qwen3--for-search": None},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_dedicated_replicas_are_refused_at_their_key(name: str) -> None:
    refused_and_fixed(WRONG[name])


def test_replicas_that_answer_no_tenant_yet_are_a_warning() -> None:
    site = changed(prod_with_links(), {**DECIDED, D: {"own": {"tenants": [], "server": ONE}}})
    plan = plan_values(site, "site.yaml")
    assert [warning.key for warning in plan.warnings if "names no tenant" in warning.what] == [f"{D}.own.tenants"]
    assert plan.texts[-1].startswith("dedicated:\n  qwen3-32b: no tenant has 1 replica of qwen3-32b--for-own;")


def test_a_tenant_with_replicas_of_its_own_takes_no_overflow() -> None:
    """The warning is the one of a tenant that accepts what it never gets."""
    site = changed(
        prod_with_links(),
        {**DECIDED, "models.glm-5-1.overflow": {"to": "qwen3-32b"}, "tenants.search.overflow": "accept"},
    )
    assert not [warning for warning in plan_values(site, "site.yaml").warnings if warning.path[-1] == "overflow"]
    own = {"models.glm-5-1.dedicated": {"own": {"tenants": ["search"], "server": {"replicas": 1, "priority": 100}}}}
    keys = {warning.key for warning in plan_values(changed(site, own), "site.yaml").warnings}
    assert {"tenants.search.overflow", "models.glm-5-1.overflow"} <= keys


@pytest.mark.parametrize(
    ("tenants", "when_away", "warned"), [(2, "refuse", True), (2, "shared", False), (1, "refuse", False)]
)
def test_shared_replicas_that_answer_no_tenant_are_a_warning(tenants: int, when_away: str, warned: bool) -> None:
    own = {"tenants": ["search", "archive"][:tenants], "server": ONE, "when_away": when_away}
    plan = plan_values(changed(prod_with_links(), {**DECIDED, D: {"own": own}}), "site.yaml")
    assert ("models.qwen3-32b.server" in {warning.key for warning in plan.warnings}) is warned


def test_a_fix_of_too_few_changes_no_other_replicas() -> None:
    """The size of a replica is the model's own key."""
    change = {"models.qwen3-32b.server.gpus": 1, D: {"own": {**FOR_SEARCH, "load": {"requests_per_s": 5}}}}
    with pytest.raises(SiteError) as refused:
        plan_values(changed(prod_with_links(), {**DECIDED, **change}), "site.yaml")
    (problem,) = refused.value.problems
    assert (problem.key, "raise replicas from 1 to " in problem.fix) == (f"{D}.own.server.replicas", True)
    assert "give a replica" not in problem.fix
