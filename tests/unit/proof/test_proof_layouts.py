"""A layout that a site names is proven and deployed as given, or refused with what is allowed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.models.model_server import deployment
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.plan.site_plan import plan_file
from stacks.proof.demand import Load, Slo
from stacks.proof.layouts import Layout, allowed, refusals
from stacks.proof.proof import prove
from stacks.proof.search import best
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("opening 1")

PLAN = plan_file(Path(__file__).parents[2] / "fixtures" / "sites" / "valid" / "layouts.yaml")
MODELS = {name: model.stable for name, model in PLAN.models.items()}


def flags(model: str) -> dict[str, str]:
    """Arguments of a model of the site, by name."""
    return dict(arg.partition("=")[::2] for arg in MODELS[model].engine.args if arg.startswith("--"))


@pytest.mark.parametrize(
    ("model", "sizes", "gpus"),
    [
        (
            "deepseek",
            {
                "--tensor-parallel-size": "1",
                "--data-parallel-size": "8",
                "--enable-expert-parallel": "",
                "--api-server-count": "1",
            },
            8,
        ),
        ("llama", {"--tensor-parallel-size": "2", "--pipeline-parallel-size": "2"}, 4),
        ("qwen", {"--tensor-parallel-size": "8", "--enable-expert-parallel": ""}, 8),
        ("small", {"--tensor-parallel-size": "1"}, 1),
    ],
)
def test_a_layout_becomes_just_its_flags_and_gpus(model: str, sizes: dict[str, str], gpus: int) -> None:
    given = flags(model)
    about = {key for key in given if "parallel" in key or key == "--api-server-count"}
    assert {key: given[key] for key in about} == sizes
    planned = MODELS[model]
    built = deployment(model, "m", planned.spec.server, planned.server, planned.engine)
    pod = built["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": str(gpus)}
    requests = pod["containers"][0]["resources"]["requests"]
    assert requests.pop("nvidia.com/gpu") == str(gpus)
    assert requests.keys() <= {"cpu", "memory"}


def test_each_data_parallel_rank_gets_its_own_slots() -> None:
    """vLLM's --max-num-seqs is of one rank; the plan's is of the replica, as the simulator takes it."""
    plan = MODELS["deepseek"].server
    assert int(flags("deepseek")["--max-num-seqs"]) * 8 == plan.max_num_seqs
    settings = MODELS["deepseek"].settings
    assert int(flags("deepseek")["--max-num-seqs"]) == settings["max_num_seqs"].value


def test_the_simulator_stands_for_all_ranks_at_once() -> None:
    given, plan = flags("glm"), MODELS["glm"].server
    assert not [key for key in given if "parallel" in key]
    assert int(given["--max-num-seqs"]) == plan.max_num_seqs
    assert int(given["--kv-cache-size"]) == plan.kv_blocks


def test_the_block_says_which_layout_and_why() -> None:
    texts = {name: model.text() for name, model in MODELS.items()}
    assert "TP1 DP8 EP: as the site sets it; 8 schedulers, each with a cache of its own" in texts["deepseek"]
    assert (
        "layout      TP1: the fewest GPUs that do, and tensor parallelism alone where that is enough" in texts["small"]
    )
    assert MODELS["llama"].settings["pipeline_parallel_size"].origin == "site"
    assert MODELS["small"].settings["tensor_parallel_size"].origin == "derived"


@pytest.mark.parametrize(
    ("name", "layout", "keys"),
    [
        ("glm-5.1-fp8", Layout(tensor=3, data=7, pipeline=100, expert_parallel=True), ["tensor", "pipeline", "data"]),
        ("llama-3.3-70b", Layout(data=2, expert_parallel=True), ["data", "expert_parallel"]),
        ("glm-5.1-fp8", Layout(tensor=2, data=4), []),
        ("qwen3-235b-a22b-fp8", Layout(data=8), ["data"]),
        ("bge-reranker-v2-m3", Layout(pipeline=2), ["pipeline"]),
        ("glm-5.1-fp8", Layout(tensor=2, data=4, expert_parallel=True), []),
        ("deepseek-v3.2", Layout(tensor=2, data=2, pipeline=2, expert_parallel=True), []),
    ],
)
def test_every_size_that_cannot_be_is_named(name: str, layout: Layout, keys: list[str]) -> None:
    assert [refusal.key for refusal in refusals(catalogue.load(name), layout)] == keys


def test_allowed_values_are_those_that_leave_nothing_against_the_size() -> None:
    gpu = GPUS["h200-sxm"]
    glm, qwen = catalogue.load("glm-5.1-fp8"), catalogue.load("qwen3-235b-a22b-fp8")
    assert allowed(glm, gpu, Layout(tensor=6), "tensor") == ["1", "2", "4", "8"]
    assert allowed(qwen, gpu, Layout(tensor=8), "tensor") == ["1", "2", "4"]
    assert allowed(qwen, gpu, Layout(tensor=8, expert_parallel=True), "tensor") == ["1", "2", "4", "8"]
    assert allowed(qwen, gpu, Layout(data=8), "data") == ["1", "2", "3", "4", "6"]


@pytest.mark.parametrize("more", [{"gpus": 16}, {"layout": Layout(tensor=8, pipeline=2)}])
def test_a_replica_of_more_gpus_than_a_node_has_is_refused_on_one_node(more: dict[str, Any]) -> None:
    spread = order("glm-5.1-fp8", **more)
    assert prove(spread).holds
    problems = prove(replace(spread, one_node=True)).problems
    assert [problem.kind for problem in problems] == ["illegal"]
    assert "16 GPUs, and a node with h200-sxm has 8" in problems[0].text


def test_no_search_on_one_node_leaves_it() -> None:
    """GLM-5.1 FP8 does not fit 8 H100, and two nodes of them are no answer where a replica is one Pod."""
    wanted = order("glm-5.1-fp8", "h100-sxm")
    assert best(wanted).layout.gpus == 16
    assert best(replace(wanted, one_node=True)).layout.gpus <= 8


def test_tensor_parallelism_alone_is_kept_as_long_as_it_is_enough() -> None:
    """A layout that follows the load would restart every replica when the load changes."""
    busy = Load(requests_per_s=3.5, prefix_hit=0.5)
    wanted = order("glm-5.1-fp8", gpus=8, replicas=3, one_node=True, load=busy)
    assert best(wanted).layout.data > 1
    assert best(replace(wanted, simple=True)).layout == Layout(tensor=8)
    more = replace(wanted, simple=True, load=Load(requests_per_s=8.0, prefix_hit=0.5), slo=Slo.of(itl_p95_ms=200))
    case = best(more)
    assert case.problems == []
    assert case.layout.data > 1
    assert Layout(tensor=8) == best(replace(more, load=busy, slo=Slo())).layout
