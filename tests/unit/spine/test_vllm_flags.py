"""Every vLLM argument that the platform emits is one that vLLM documents.

golden/vllm-0.32-flags.txt holds the option names of vLLM 0.32.0, read from the fields and add_argument calls of
vllm/engine/arg_utils.py and vllm/entrypoints/launchers/cli_args.py of its wheel.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from floor.problems import SiteError
from stacks.facts import catalogue, versions
from stacks.plan.site_plan import plan_file, plan_values
from stacks.proof.proof import prove
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.14", "000.15", "000.16")

ROOT = Path(__file__).parents[3]
FLAGS = set((Path(__file__).parents[1] / "golden/vllm-0.32-flags.txt").read_text().split())


def names(args: list[str]) -> list[str]:
    return [arg.partition("=")[0] for arg in args if arg.startswith("-")]


def test_list_is_of_the_pinned_version() -> None:
    assert versions.load().images.vllm.endswith(":v0.32.0"), "read the list of the new version's flags too"
    assert "--max-num-batched-tokens" in FLAGS
    assert "--no-such-flag" not in FLAGS


@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("Pulumi.prod.yaml", "glm-5-1"),
        ("Pulumi.prod.yaml", "qwen3-32b"),
        ("tests/fixtures/sites/valid/layouts.yaml", "deepseek"),
        ("tests/fixtures/sites/valid/layouts.yaml", "llama"),
        ("tests/fixtures/sites/valid/optimisations.yaml", "deepseek"),
        ("tests/fixtures/sites/valid/optimisations.yaml", "llama"),
    ],
)
def test_server_arguments_are_documented(file: str, model: str) -> None:
    plan = plan_file(ROOT / file).models[model].stable
    args = plan.engine.args
    assert args[0] == "/models/weights"
    assert [name for name in names(args) if name not in FLAGS] == []


@pytest.mark.parametrize("model", catalogue.names())
def test_catalogue_flags_are_documented(model: str) -> None:
    assert [name for name in names(list(catalogue.load(model).engine_flags)) if name not in FLAGS] == []


def test_document_example_is_emitted_with_right_keys() -> None:
    """Chunked prefill with 8,192 batched tokens, two replicas on hopper nodes."""
    plan = plan_file(ROOT / "Pulumi.prod.yaml").models["glm-5-1"].stable
    assert {"--enable-chunked-prefill", "--max-num-batched-tokens=8192"} <= set(plan.engine.args)
    assert (plan.spec.server.replicas, plan.spec.server.gpu_family) == (2, "hopper")


def arguments(model: str, **server: object) -> dict[str, str]:
    """Of one more model of the reference site, by flag."""
    site = changed(prod(), {"models.vectors": {"catalogue": model, "server": {"replicas": 2, **server}}})
    args = plan_values(site, "Pulumi.prod.yaml").models["vectors"].stable.engine.args
    return dict(arg.partition("=")[::2] for arg in args if arg.startswith("--"))


@pytest.mark.row("002.04")
@pytest.mark.parametrize("model", ["bge-m3", "multilingual-e5-large", "bge-reranker-v2-m3"])
def test_an_encoder_reads_a_prompt_in_one_step_and_caches_nothing(model: str) -> None:
    """vLLM 0.32 takes flags for the contrary, and then gives wrong vectors, or ends at the first request."""
    flags = arguments(model)
    assert not {"--enable-chunked-prefill", "--enable-prefix-caching"} & flags.keys()
    assert flags["--kv-cache-dtype"] == "auto"
    assert int(flags["--max-num-batched-tokens"]) >= int(flags["--max-model-len"])


@pytest.mark.row("000.17", "001.05")
def test_a_long_prompt_takes_a_part_of_each_step_where_the_site_says_so() -> None:
    """And the proof is of such steps: gaps of others are shorter, its own first token is later."""
    flag = "--long-prefill-token-threshold"
    assert flag not in arguments("qwen3-8b")
    assert arguments("qwen3-8b", long_prefill_token_threshold=1024)[flag] == "1024"
    capped = plan_file(ROOT / "Pulumi.prod.yaml").models["glm-5-1"].stable.proof
    whole = prove(replace(capped.order, prompt_step_tokens=None))
    assert capped.serving["heavy_itl_p99"].value < whole.serving["heavy_itl_p99"].value / 3
    assert capped.serving["heavy_lasts"].value > whole.serving["heavy_lasts"].value
    assert capped.serving["ttft_p95"].value > whole.serving["ttft_p95"].value
    assert capped.case.reserve == whole.case.reserve


@pytest.mark.row("000.17")
@pytest.mark.parametrize(
    ("model", "tokens", "step", "what"),
    [
        ("qwen3-8b", 4096, {"max_num_batched_tokens": 4096}, "a step has 4,096 tokens for all"),
        ("qwen3-8b", 50_000, {}, "a request has at most 40,960 tokens"),
        ("bge-m3", 1024, {}, "an encoder reads each prompt in one step"),
    ],
)
def test_a_cap_that_does_nothing_is_refused_with_a_fix_that_works(
    model: str, tokens: int, step: dict[str, int], what: str
) -> None:
    with pytest.raises(SiteError) as refused:
        arguments(model, long_prefill_token_threshold=tokens, **step)
    (problem,) = refused.value.problems
    assert what in problem.what
    assert problem.fix == "take server.long_prefill_token_threshold out"


@pytest.mark.row("002.04")
def test_an_encoders_step_is_as_large_as_others_and_never_below_its_context() -> None:
    assert arguments("multilingual-e5-large")["--max-num-batched-tokens"] == "8192"
    lower = {"max_model_len": {"value": 4096, "reason": "no prompt is longer"}}
    site = changed(prod(), {"models.vectors": {"catalogue": "bge-m3", "server": {"replicas": 2}, "overrides": lower}})
    plan = plan_values(changed(site, {"models.vectors.server.max_num_batched_tokens": 4096}), "Pulumi.prod.yaml")
    assert {"--max-model-len=4096", "--max-num-batched-tokens=4096"} <= set(plan.models["vectors"].stable.engine.args)


@pytest.mark.row("002.04")
def test_of_a_decoder_that_embeds_vllm_knows_what_its_pooling_allows() -> None:
    flags = arguments("qwen3-embedding-0.6b")
    assert not {"--enable-chunked-prefill", "--enable-prefix-caching"} & flags.keys()
    assert flags["--kv-cache-dtype"] == "fp8"


@pytest.mark.row("002.04")
def test_a_step_that_cuts_an_encoders_prompt_is_refused_with_a_fix_that_works() -> None:
    with pytest.raises(SiteError) as refused:
        arguments("bge-m3", max_num_batched_tokens=4096)
    (problem,) = refused.value.problems
    assert "max_num_batched_tokens is 4,096, and prompts have up to 8,192 tokens" in problem.what
    assert problem.fix == "leave max_num_batched_tokens to the proof"
    assert arguments("multilingual-e5-large", max_num_batched_tokens=512)["--max-num-batched-tokens"] == "512"


@pytest.mark.row("002.15")
@pytest.mark.parametrize(
    ("change", "ordered"),
    [
        ({}, False),
        ({"callers": {"decided_by": "gatekeeper"}}, True),
        ({"callers": {"decided_by": "gateway", "keep_both": True}}, True),
        ({"callers": {"decided_by": "gatekeeper"}, "tiers": {}}, False),
    ],
)
def test_tiers_wait_in_their_order_where_a_gatekeeper_writes_their_priorities(
    change: dict[str, Any], *, ordered: bool
) -> None:
    site = changed(prod(), change)
    for tenant in site["tenants"].values():
        if not site["tiers"]:
            tenant.pop("tier", None)
    flags = [model.stable.engine.args for model in plan_values(site, "Pulumi.prod.yaml").models.values()]
    assert {"--scheduling-policy=priority" in args for args in flags} == {ordered}
