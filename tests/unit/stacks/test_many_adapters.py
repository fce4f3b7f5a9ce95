"""Hundreds of adapters of a model, of which some have a place on each GPU: what is rendered, and what is refused."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from components.gateway.front_door import listed_models
from components.gateway.traffic_policies import target_gateway
from components.models import inference_pool, weights
from components.models.model_server import deployment
from components.tenants.callers import tenants_file
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("003.27")

MODEL = "qwen3-32b"
A, PLACES = f"models.{MODEL}.adapters", f"models.{MODEL}.server.resident_adapters"
GATEKEEPER = {"callers": {"decided_by": "gatekeeper"}}
COUNT = 200
# Of the API server for a ConfigMap, and of etcd for any object.
MOST = 2**20


def adapters(count: int = COUNT, **more: Any) -> dict[str, Any]:
    spec = {"rank": 16, "target_modules": ["q_proj", "v_proj"]} | more
    return {f"a-{n:04}": {"repository": f"acme/lora-{n}", "revision": f"{n:040x}", **spec} for n in range(1, count + 1)}


@cache
def plan(count: int = COUNT, places: int = 16, skew: float = 0.0) -> SitePlan:
    change = {A: adapters(count), PLACES: places, f"models.{MODEL}.load.adapter_skew": skew}
    return plan_values(changed(prod(), {**GATEKEEPER, **change}), "site.yaml")


def test_the_engine_has_all_in_its_nodes_memory_and_some_on_the_gpu() -> None:
    revision = plan().models[MODEL].stable
    assert {"--max-loras=16", f"--max-cpu-loras={COUNT}", "--max-lora-rank=16"} <= {*revision.engine.args}
    assert [revision.settings[key].whole for key in ("max_loras", "max_cpu_loras")] == [16, COUNT]
    # 200 adapters of 26.2 million parameters in 16 bits.
    held = [
        setting.inputs["adapters_gib"] for setting in revision.settings.values() if "adapters_gib" in setting.inputs
    ]
    assert held == [10]


def test_pickers_know_where_an_adapter_has_a_place_as_long_as_they_take_turns() -> None:
    def scorers(many: SitePlan) -> dict[str, float]:
        revision = many.models[MODEL].stable
        text = inference_pool.picker_config(MODEL, "n", revision.spec.pool, revision.picker)["data"]["config.yaml"]
        (profile,) = yaml.safe_load(text)["schedulingProfiles"]
        return {plugin["pluginRef"]: plugin.get("weight", 0) for plugin in profile["plugins"]}

    assert scorers(plan())["lora-affinity-scorer"] == 3
    assert "lora-affinity-scorer" not in scorers(plan(8, 8))


@pytest.mark.parametrize("count", [COUNT, 1000])
def test_no_object_outgrows_what_the_cluster_takes(count: int) -> None:
    many = plan(count)
    revision, tenants = many.models[MODEL].stable, many.tenants
    assert revision.weights
    known = tenants_file(tenants.tenants, names=tenants.names, adapters=tenants.adapters, owners={MODEL: "x"})
    assert len(json.loads(known)["adapters"]) == count
    objects = [
        {"tenants.json": known},
        weights.order(MODEL, "n", revision.weights),
        deployment(MODEL, "n", revision.spec.server, revision.server, revision.engine, revision.weights),
        listed_models(
            "g",
            target_gateway(),
            listener="g/i/i",
            model_lists={},
            names=tenants.names,
            adapters=tenants.adapter_callers,
        ),
    ]
    assert max(len(json.dumps(body)) for body in objects) < MOST / 2
    assert len(objects[2]["spec"]["template"]["spec"]["initContainers"]) <= 3


def test_the_preview_states_what_turns_cost() -> None:
    text = plan().models[MODEL].stable.text()
    (line,) = [line for line in text.splitlines() if line.strip().startswith("turns")]
    assert f"{COUNT} adapters, all in 10.5 GB of the node's memory per replica: 92 % of the requests load" in line
    assert "beyond 16 requests at once in a replica, some wait" in line
    skewed = plan(skew=1.5).models[MODEL].stable.proof.adapters
    assert skewed["adapter_misses"].value < 35
    assert skewed["adapted_at_once"].value > 40


def test_a_start_may_take_as_long_as_the_engine_loads_its_adapters() -> None:
    """One after the other, of matrices that the site states: 1,000 take longer than the slack for graphs."""
    few, many = (plan(count).models[MODEL].stable for count in (COUNT, 1000))
    loaded, read = (
        [float(revision.settings["start_budget_s"].inputs[key]) for revision in (few, many)]
        for key in ("load_adapters_s", "read_weights_s")
    )
    # 64 layers, two projections, two matrices of each.
    assert loaded == [round(count * 64 * 2 * 2 * 0.5e-3) for count in (COUNT, 1000)]
    budgets = [revision.settings["start_budget_s"].whole for revision in (few, many)]
    assert budgets[1] - budgets[0] == pytest.approx(2 * (read[1] + loaded[1] - read[0] - loaded[0]), abs=4)
    assert many.proof.start_s() - many.proof.order.read_s() == pytest.approx(120 + 128)


ALL_OF_512 = {"rank": 512, "target_modules": ["up_proj", "down_proj"]}
TEAMS = {f"a-team-with-quite-a-long-name-{number}": {"models": [MODEL], "keys": {"laptop": {}}} for number in range(30)}
WRONG: dict[str, Wrong] = {
    "a place for each of hundreds": Wrong(
        {A: adapters(17), **GATEKEEPER}, A, "write server.resident_adapters: 16", {PLACES: 16}
    ),
    "callers in an object of the gateway": Wrong(
        {A: adapters(17), PLACES: 16}, A, "write callers: {decided_by: gatekeeper}", GATEKEEPER
    ),
    "places for nothing": Wrong({PLACES: 4}, PLACES, "has no adapters to place", {PLACES: None}),
    "a list of all tenants of each": Wrong(
        {A: adapters(900, tenants=[*TEAMS]), PLACES: 16, **GATEKEEPER, **{f"tenants.{n}": s for n, s in TEAMS.items()}},
        f"{A}.a-0001.tenants",
        "larger than an object of the cluster may be",
    ),
    "more places than a GPU has room for": Wrong(
        {A: adapters(250, **ALL_OF_512), PLACES: 250, **GATEKEEPER}, f"models.{MODEL}.server.gpus", "take adapters out"
    ),
    "more requests at once than places": Wrong(
        {A: adapters(), PLACES: 2, **GATEKEEPER},
        f"models.{MODEL}.server.gpus",
        "2 at once per scheduler, as 2 of its 200 adapters have a place",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_at_its_key(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
