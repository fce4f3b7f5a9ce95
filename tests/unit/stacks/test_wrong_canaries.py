"""Canaries that could not serve beside their model, or would not do as a model: each is refused at its own key."""

from __future__ import annotations

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.06")

C = "models.qwen3-32b.canary"
DECIDED = {"callers": {"decided_by": "gatekeeper"}}
WRONG: dict[str, Wrong] = {
    "no gatekeeper": Wrong({C: {"percent": 5}}, C, "needs the gatekeeper", DECIDED),
    "share above all": Wrong({**DECIDED, C: {"percent": 105}}, f"{C}.percent", "100", {f"{C}.percent": 100}),
    "tenant that is none": Wrong(
        {**DECIDED, C: {"percent": 5, "pinned": {"serch": "stable"}}},
        f"{C}.pinned.serch",
        "did you mean 'search'",
        {f"{C}.pinned": {}},
    ),
    "tenant that may not call it": Wrong(
        {**DECIDED, C: {"percent": 5, "pinned": {"search": "canary"}}, "tenants.search.models": ["glm-5-1"]},
        f"{C}.pinned.search",
        "may not call qwen3-32b",
        {f"{C}.pinned": {}},
    ),
    "other task": Wrong(
        {**DECIDED, C: {"percent": 5, "catalogue": "bge-m3"}},
        f"{C}.catalogue",
        "has another task than the model",
        {f"{C}.catalogue": "qwen3-32b-fp8"},
    ),
    "model that no catalogue has": Wrong(
        {**DECIDED, C: {"percent": 5, "catalogue": "qwen3-32b-fp9"}}, f"{C}.catalogue", "is not in the catalogue"
    ),
    "flag that the engine has not": Wrong(
        {**DECIDED, C: {"percent": 5, "server": {"extra_args": ["--sed=7"]}}},
        f"{C}.server.extra_args.0",
        "--seed",
        {f"{C}.server.extra_args": ["--seed=7"]},
    ),
    "too few GPUs": Wrong(
        {**DECIDED, C: {"percent": 5, "catalogue": "glm-5.1-fp8", "server": {"gpus": 1, "replicas": 1}}},
        f"{C}.server.gpus",
        "does not fit",
    ),
    "too few replicas for its share": Wrong(
        {**DECIDED, C: {"percent": 100, "server": {"replicas": 1, "gpus": 1}}},
        f"{C}.server.gpus",
        "does not keep its targets",
        {f"{C}.server.replicas": 4},
    ),
    "range of replicas": Wrong(
        {**DECIDED, C: {"percent": 5, "server": {"replicas": 2, "scaling": {"least": 1}}}},
        f"{C}.server.scaling",
        "a canary's replicas are a number",
        {f"{C}.server.scaling": None},
    ),
    "more than the nodes hold": Wrong(
        {**DECIDED, C: {"percent": 50, "server": {"replicas": 30}}}, f"{C}.server.replicas", "find no room"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_canary_is_refused_at_its_key(name: str) -> None:
    refused_and_fixed(WRONG[name])


def test_a_canary_that_tries_nothing_is_a_warning() -> None:
    plan = plan_values(changed(prod_with_links(), {**DECIDED, C: {"percent": 100}}), "site.yaml")
    assert [warning.key for warning in plan.warnings if "is the same as the model" in warning.what] == [C]
