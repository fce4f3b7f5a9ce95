"""Adapters of a site: what engines are started with, where their names lead, and what is refused at its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.gateway.door_scripts import model_names_script
from components.gateway.front_door import first_filters, listed_models
from components.gateway.traffic_policies import target_gateway
from components.tenants.callers import tenants_file
from stacks.plan.adapter_configs import differences
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.13")

A = "models.qwen3-32b.adapters"
LEGAL = {"repository": "acme/qwen-legal", "revision": "a" * 40, "rank": 12, "target_modules": ["q_proj", "v_proj"]}
TAX = {"repository": "acme/qwen-tax", "revision": "b" * 40, "rank": 64, "target_modules": ["o_proj", "down_proj"]}
BOTH = {"legal": {**LEGAL, "tenants": ["search"]}, "tax": TAX}


def plan(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def test_the_engine_has_each_by_its_name_and_room_for_all_at_once() -> None:
    args = plan({A: BOTH}).models["qwen3-32b"].stable.engine.args
    begin = args.index("--lora-modules")
    assert [json.loads(text) for text in args[begin + 1 : begin + 3]] == [
        {"name": "legal", "path": f"/models/adapters/{LEGAL['revision']}"},
        {"name": "tax", "path": f"/models/adapters/{TAX['revision']}"},
    ]
    assert args[begin + 3 : begin + 6] == ["--max-loras=2", "--enable-lora", "--max-lora-rank=64"]
    assert args[begin + 6] == "--lora-target-modules"
    assert args[begin + 7 : begin + 11] == ["down_proj", "o_proj", "q_proj", "v_proj"]
    assert not [arg for arg in plan({}).models["qwen3-32b"].stable.engine.args if "lora" in arg]


def test_a_rank_is_rounded_up_to_one_that_vllm_takes() -> None:
    revision = plan({A: {"legal": LEGAL}}).models["qwen3-32b"].stable
    assert "--max-lora-rank=16" in revision.engine.args
    assert revision.settings["max_lora_rank"].whole == 16
    assert revision.settings["max_loras"].whole == 1


def test_they_are_brought_checked_and_counted_as_weights_are() -> None:
    with_them, alone = (plan(change).models["qwen3-32b"].stable for change in ({A: BOTH}, {}))
    assert with_them.weights and alone.weights
    assert with_them.weights.roles == ("weights", "adapter-legal", "adapter-tax")
    wanted = with_them.weights.by_role["adapter-tax"]
    assert (wanted.repository, wanted.revision) == (TAX["repository"], TAX["revision"])


def test_a_volume_is_larger_for_large_adapters_alone_as_it_never_shrinks() -> None:
    alone, small, large = (
        plan({A: adapters}).models["qwen3-32b"].stable.server.weight_bytes
        for adapters in ({}, BOTH, {f"tax-{number}": {**TAX, "rank": 256} for number in range(8)})
    )
    assert small == alone
    assert large > 1.05 * alone


def test_another_adapter_is_another_revision_and_none_leaves_it_as_it_was() -> None:
    digests = {plan({A: adapters}).models["qwen3-32b"].stable.digest for adapters in ({}, {"legal": LEGAL}, BOTH)}
    assert len(digests) == 3
    assert plan({A: {}}).models["qwen3-32b"].stable.digest == plan({}).models["qwen3-32b"].stable.digest


def test_tenants_see_those_that_they_may_call() -> None:
    tenants = plan({A: BOTH}).tenants
    callers = [name for name, spec in tenants.tenants.items() if "qwen3-32b" in spec.models]
    assert len(callers) > 1
    assert {name for name, listed in tenants.listed.items() if "legal" in listed} == {"search"}
    assert {name for name, listed in tenants.listed.items() if "tax" in listed} == {*callers}
    assert tenants.adapter_callers["legal"] == ("search",)
    assert tenants.names["legal"] == "qwen3-32b"


def test_where_a_gatekeeper_decides_no_object_of_the_gateway_has_a_tenant_of_them() -> None:
    tenants = plan({A: BOTH, "callers": {"decided_by": "gatekeeper"}}).tenants
    assert tenants.adapter_callers == {"legal": (), "tax": ()}
    known = json.loads(tenants_file(tenants.tenants, names=tenants.names, adapters=tenants.adapters))
    assert known["adapters"]["legal"] == {"model": "qwen3-32b", "tenants": ["search"]}
    assert "adapters" not in json.loads(tenants_file(tenants.tenants, names=tenants.names))


def test_names_are_data_of_routes_and_a_site_without_them_has_the_script_that_it_had() -> None:
    names = {"legal": "qwen3-32b"}
    policy = listed_models(
        "g", target_gateway(), listener="g/i/i", model_lists={}, names=names, adapters={"legal": ["search"]}
    )
    (patch,) = policy["spec"]["jsonPatches"]
    context = patch["operation"]["value"][first_filters()[-1]["name"]]["filter_context"]
    assert context == {"models": names, "adapters": {"legal": {"search": True}}}
    assert "adapters" not in model_names_script()
    assert "legal" not in json.dumps(first_filters(adapters=True))


WRONG: dict[str, Wrong] = {
    "name of a model": Wrong({A: {"glm-5-1": LEGAL}}, f"{A}.glm-5-1", "taken already, by models.glm-5-1"),
    "name of an alias": Wrong(
        {A: {"qwen": LEGAL}, "models.glm-5-1.aliases": ["qwen"]},
        f"{A}.qwen",
        "taken already, by models.glm-5-1.aliases.0",
        {"models.glm-5-1.aliases": []},
    ),
    "no name": Wrong({A: {"Legal_1": LEGAL}}, f"{A}.Legal_1", "lower-case letters"),
    "rank beyond vLLM's": Wrong({f"{A}.legal": {**LEGAL, "rank": 513}}, f"{A}.legal.rank", "512", {A: BOTH}),
    "branch for a commit": Wrong({f"{A}.legal": {**LEGAL, "revision": "main"}}, f"{A}.legal.revision", "main"),
    "module that the model has not": Wrong(
        {f"{A}.legal": {**LEGAL, "target_modules": ["q_proj", "v_pro"]}},
        f"{A}.legal.target_modules.1",
        "did you mean 'v_proj'",
        {A: BOTH},
    ),
    "model with latent attention and experts": Wrong(
        {"models.glm-5-1.adapters": {"legal": {**LEGAL, "target_modules": ["o_proj"]}}},
        "models.glm-5-1.adapters.legal.target_modules.0",
        "none, as it has no such layers",
        {"models.glm-5-1.adapters": {}},
    ),
    "another repository at the same commit": Wrong(
        {A: {"legal": LEGAL, "tax": {**TAX, "revision": LEGAL["revision"]}}},
        f"{A}.tax.repository",
        "has the commit of acme/qwen-legal",
        {f"{A}.tax.repository": LEGAL["repository"]},
    ),
    "tenant that is none": Wrong(
        {f"{A}.legal": {**LEGAL, "tenants": ["serch"]}}, f"{A}.legal.tenants.0", "did you mean 'search'", {A: BOTH}
    ),
    "tenant that may not call the model": Wrong(
        {f"{A}.legal": {**LEGAL, "tenants": ["search"]}, "tenants.search.models": ["glm-5-1"]},
        f"{A}.legal.tenants.0",
        "may not call qwen3-32b",
    ),
    "tenant that lists an adapter": Wrong(
        {A: {"legal": LEGAL}, "tenants.search.models": ["legal"]}, "tenants.search.models", "did you mean 'qwen3-32b'"
    ),
    "canary of other weights": Wrong(
        {
            A: {"legal": LEGAL},
            "callers": {"decided_by": "gatekeeper"},
            "models.qwen3-32b.canary": {"percent": 1, "catalogue": "qwen3-0.6b", "server": {"replicas": 1}},
        },
        f"{A}.legal",
        "the canary would have it on Qwen/Qwen3-0.6B",
        {A: {}},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_at_its_key(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_a_canary_has_the_adapters_of_its_model() -> None:
    server = {"replicas": 1, "extra_args": ["--seed=7"]}
    change = {"callers": {"decided_by": "gatekeeper"}, "models.qwen3-32b.canary": {"percent": 1, "server": server}}
    canary = plan({A: BOTH, **change}).models["qwen3-32b"].canary
    assert canary
    assert "--enable-lora" in canary.engine.args


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"r": 12, "target_modules": ["v_proj", "q_proj"], "bias": "none", "modules_to_save": None}, []),
        ({"r": 16, "target_modules": ["q_proj", "v_proj"]}, ["rank"]),
        ({"r": 8, "rank_pattern": {"q_proj": 12}, "target_modules": ["q_proj", "v_proj"]}, []),
        ({"r": 12, "target_modules": ["q_proj"]}, ["target_modules"]),
        ({"r": 12, "target_modules": "q_proj|v_proj", "use_dora": True}, [""]),
        ({"r": 12, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]}, [""]),
    ],
)
def test_an_adapter_is_what_the_site_says_of_it(config: dict[str, Any], keys: list[str]) -> None:
    spec = plan({A: {"legal": LEGAL}}).site.models["qwen3-32b"].adapters["legal"]
    problems = [*differences(("legal",), spec, json.dumps(config))]
    assert [".".join(problem.path[1:]) for problem in problems] == keys
    assert all(problem.fix and problem.got for problem in problems)
