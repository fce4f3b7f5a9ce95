"""Loads, contexts and targets that cannot be or contradict each other: each is refused at the key that says it."""

from __future__ import annotations

import pytest

from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

OVERRIDES = "models.qwen3-32b.overrides"
REASON = "somebody measured it"
RANKED = {"requests_per_s": 1, "prompt_tokens": {"p50": 500, "p95": 4000}}
WRONG: dict[str, Wrong] = {
    "prompts and answers beyond the context": Wrong(
        {"models.qwen3-32b.load.prompt_tokens.p95": 40_960},
        "models.qwen3-32b.load.prompt_tokens.p95",
        "write 39960 or less",
        {"models.qwen3-32b.load.prompt_tokens.p95": 39_960, "models.qwen3-32b.server.replicas": 2},
    ),
    "answers alone beyond the context": Wrong(
        {"models.qwen3-32b.load.answer_tokens.p95": 200_000},
        "models.qwen3-32b.load.answer_tokens.p95",
        "write 34960 or less",
        {
            "models.qwen3-32b.load.answer_tokens.p95": 34_960,
            "models.qwen3-32b.load.requests_per_s": 0.05,
            "models.qwen3-32b.slo": None,
        },
    ),
    "prompts of a length that the site leaves to the default": Wrong(
        {"models.rank": {"catalogue": "bge-reranker-v2-m3", "load": {"requests_per_s": 1}}},
        "models.rank.load",
        "add prompt_tokens with a p95 of 8191 or less",
        {"models.rank.load.prompt_tokens": {"p50": 500, "p95": 8191}},
    ),
    "time between tokens of a model that writes none": Wrong(
        {"models.rank": {"catalogue": "bge-reranker-v2-m3", "load": RANKED, "slo": {"itl_p95_ms": 60}}},
        "models.rank.slo.itl_p95_ms",
        "bge-reranker-v2-m3 writes no tokens",
        {"models.rank.slo": {"ttft_p95_ms": 2000}},
    ),
    "mean time between tokens of a model that writes none": Wrong(
        {"models.rank": {"catalogue": "bge-reranker-v2-m3", "load": RANKED, "slo": {"tpot_p99_ms": 60}}},
        "models.rank.slo.tpot_p99_ms",
        "or promise ttft_p99_ms",
        {"models.rank.slo": {"ttft_p99_ms": 2000}},
    ),
    "percentiles that descend": Wrong(
        {"models.qwen3-32b.slo": {"itl_p50_ms": 60, "itl_p99_ms": 50}},
        "models.qwen3-32b.slo",
        "raise itl_p99_ms to at least 60",
        {"models.qwen3-32b.slo.itl_p99_ms": 60},
    ),
    "targets that name none": Wrong(
        {"models.qwen3-32b.slo": {}},
        "models.qwen3-32b.slo",
        "give at least one of ttft_p50_ms, ",
        {"models.qwen3-32b.slo.tpot_p50_ms": 60},
    ),
    "stream cut before the slowest first token": Wrong(
        {"gateway.stream_idle_timeout_s": 60, "models.qwen3-32b.slo": {"ttft_p95_ms": 2000, "ttft_p99_ms": 90_000}},
        "gateway.stream_idle_timeout_s",
        "models.qwen3-32b.slo.ttft_p99_ms allows",
        {"models.qwen3-32b.slo.ttft_p99_ms": 5000},
    ),
    "answers of a model that writes none": Wrong(
        {
            "models.rank": {
                "catalogue": "bge-reranker-v2-m3",
                "load": {**RANKED, "answer_tokens": {"p50": 100, "p95": 500}},
            }
        },
        "models.rank.load.answer_tokens",
        "bge-reranker-v2-m3 writes no tokens",
        {"models.rank.load": RANKED},
    ),
    "stream cut between two tokens": Wrong(
        {"gateway.stream_idle_timeout_s": 60, "models.qwen3-32b.slo": {"itl_p95_ms": 90_000}},
        "gateway.stream_idle_timeout_s",
        "cut between two tokens, as models.qwen3-32b.slo.itl_p95_ms allows them, 90000 ms",
        {"models.qwen3-32b.slo": {"itl_p95_ms": 60}},
    ),
    "declared answers cut by the request's time": Wrong(
        {
            "models.qwen3-32b.load.answer_tokens": {"p50": 9000, "p95": 20_000},
            "models.qwen3-32b.load.requests_per_s": 0.01,
            "models.qwen3-32b.server.longest_stream_s": 60,
            "models.qwen3-32b.request_timeout_s": 60,
        },
        "models.qwen3-32b.request_timeout_s",
        "write 1200 or more",
        {"models.qwen3-32b.request_timeout_s": 1200},
    ),
    "context beyond the model's": Wrong(
        {f"{OVERRIDES}.max_model_len": {"value": 40_961, "reason": REASON}},
        f"{OVERRIDES}.max_model_len.value",
        "write 40960 or less",
        {f"{OVERRIDES}.max_model_len.value": 40_960},
    ),
    "tokens of a step in two places": Wrong(
        {
            "models.qwen3-32b.server.max_num_batched_tokens": 8192,
            f"{OVERRIDES}.max_num_batched_tokens": {"value": 4096, "reason": REASON},
        },
        "models.qwen3-32b.server.max_num_batched_tokens",
        "which overrides.max_num_batched_tokens sets to 4096",
        {"models.qwen3-32b.server.max_num_batched_tokens": None},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_load_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_prompts_without_end_are_reported_once() -> None:
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), {"models.qwen3-32b.load.prompt_tokens.p95": float("inf")}), "site.yaml")
    assert [problem.what for problem in caught.value.problems] == ["not a whole number"]
