"""Aliases of models: which are taken, which are refused at their key, and where they lead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.gateway.front_door import first_filters, listed_models
from components.gateway.gateway_errors import openai_errors
from components.gateway.traffic_policies import target_gateway
from floor.headers import MODEL_HEADER, REWRITE_HEADER, TRUSTED_HEADERS
from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("000.36")

FIRST, SECOND = "models.glm-5-1.aliases", "models.qwen3-32b.aliases"


def site_with(first: list[Any], second: list[Any]) -> dict[str, Any]:
    site = prod()
    site["models"]["glm-5-1"]["aliases"] = first
    site["models"]["qwen3-32b"]["aliases"] = second
    return site


def problems(site: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    assert all(problem.fix for problem in caught.value.problems)
    return {problem.key: f"{problem.what}; {problem.fix}" for problem in caught.value.problems}


@pytest.mark.parametrize("alias", ["glm-5.1", "zai-org/GLM-5.1-FP8", "openrouter:glm_5.1@fp8+long", "5", "a" * 128])
def test_names_as_clients_write_them_are_taken(alias: str) -> None:
    assert plan_values(site_with([alias], []), "site.yaml").site.models["glm-5-1"].aliases == (alias,)


@pytest.mark.parametrize(
    "alias",
    ["", " glm", "glm 5", "glm\n", "glm\x00", "glm\x7f", 'glm"', "glm\\", "glm{5}", "-glm", "/glm", "glmé", "a" * 129],
)
def test_what_is_no_name_is_refused_at_its_key(alias: str) -> None:
    refused = problems(site_with(["glm-5.1", alias], []))
    assert refused.keys() == {f"{FIRST}.1"}


def test_a_model_has_a_bounded_number_of_them() -> None:
    assert problems(site_with([f"glm-{number}" for number in range(17)], [])).keys() == {FIRST}


@pytest.mark.parametrize(
    ("first", "second", "key", "holder"),
    [
        (["glm-5.1"], ["qwen-3", "glm-5.1"], f"{SECOND}.1", f"{FIRST}.0"),
        (["glm-5.1", "glm-5.1"], [], f"{FIRST}.1", f"{FIRST}.0"),
        (["qwen3-32b"], [], f"{FIRST}.0", "models.qwen3-32b"),
        ([], ["qwen3-32b"], f"{SECOND}.0", "models.qwen3-32b"),
    ],
    ids=["another model's alias", "twice", "another model", "its own name"],
)
def test_a_name_leads_to_one_model(first: list[str], second: list[str], key: str, holder: str) -> None:
    refused = problems(site_with(first, second))
    assert refused.keys() == {key}
    assert f"is taken already, by {holder}" in refused[key]


def test_a_tenant_names_the_model_and_no_alias_of_it() -> None:
    site = site_with(["glm-5.1"], [])
    site["tenants"]["search"]["models"] = ["glm-5.1"]
    refused = problems(site)
    assert refused.keys() == {"tenants.search.models"}
    assert "write glm-5-1" in refused["tenants.search.models"]


def test_the_script_runs_between_the_ai_gateway_and_who_decides_by_the_model() -> None:
    """The AI gateway v1.0.0 puts its processor before the first filter of a name that it knows."""
    known = (
        "ext_proc",
        "wasm",
        "lua",
        "rbac",
        "local_ratelimit",
        "ratelimit",
        "custom_response",
        "compressor",
        "router",
    )
    prefixes = tuple(f"envoy.filters.http.{name}" for name in known)
    assert [filter_["name"].startswith(prefixes) for filter_ in first_filters()] == [False, False, False, False, True]
    assert {MODEL_HEADER, REWRITE_HEADER} <= set(TRUSTED_HEADERS)


def test_aliases_are_in_routes_alone_and_no_script_knows_one() -> None:
    """A changed listener is replaced, and cuts streams that outlast its drain time."""
    policy = listed_models("g", target_gateway(), listener="g/i/i", model_lists={}, names={"glm-5.1": "glm-5-1"})
    (patch,) = policy["spec"]["jsonPatches"]
    assert patch["type"].endswith(".RouteConfiguration")
    scripts = patch["operation"]["value"]
    assert scripts[first_filters()[-1]["name"]]["filter_context"] == {"models": {"glm-5.1": "glm-5-1"}}
    assert "glm" not in json.dumps([first_filters(), openai_errors("g", target_gateway(), listener="g/i/i", tls=True)])
