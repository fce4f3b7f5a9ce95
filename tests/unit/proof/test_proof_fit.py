"""What must fit and what must not; every refusal names a fix that works."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from stacks.facts import catalogue
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.fixes import nearest
from stacks.proof.layouts import Layout, why_illegal
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import CHAT, order

pytestmark = pytest.mark.row("opening 1", "000.18")

LONG = Load(requests_per_s=0.1, prompt_tokens=Spread(60_000, 120_000), answer_tokens=Spread(500, 2000))

FITS: list[tuple[str, str, dict[str, Any]]] = [
    ("glm-5.1-fp8", "h200-sxm", {"gpus": 8}),
    ("glm-5.1-fp8", "b200", {"gpus": 8}),
    ("glm-5.1-fp8", "mi300x", {"gpus": 8}),
    ("glm-5.1-fp8", "h100-sxm", {"gpus": 16}),
    ("glm-5.1-fp8", "h200-sxm", {"gpus": 8, "context_tokens": 202_752}),
    ("glm-5.1-fp8", "h200-sxm", {"layout": Layout(tensor=2, data=4, expert_parallel=True)}),
    ("deepseek-v3.2", "h200-sxm", {"gpus": 8}),
    ("deepseek-v3.1-nvfp4", "b200", {"gpus": 4}),
    ("deepseek-v3.1-nvfp4", "gb200", {"gpus": 4}),
    ("kimi-k2.5", "h200-sxm", {"gpus": 8, "context_tokens": 262_144}),
    ("qwen3-32b-fp8", "h200-sxm", {"gpus": 1}),
    ("qwen3-32b-fp8", "h100-sxm", {"gpus": 1}),
    ("qwen3-32b-fp8", "l40s", {"gpus": 2}),
    ("qwen3-235b-a22b-fp8", "h200-sxm", {"layout": Layout(tensor=8, expert_parallel=True)}),
    ("llama-3.3-70b", "h200-sxm", {"gpus": 2}),
    ("llama-3.1-405b", "h200-sxm", {"gpus": 8}),
    ("llama-3.1-405b", "b200", {"gpus": 8, "context_tokens": 131_072}),
    ("llama-3.1-8b", "l4", {"gpus": 1, "typical_request_tokens": 4096}),
    ("gpt-oss-120b", "h100-sxm", {"gpus": 1, "typical_request_tokens": 8192}),
    ("gpt-oss-20b", "l4", {"gpus": 1, "typical_request_tokens": 4096}),
    ("mistral-small-4", "h100-sxm", {"gpus": 2, "kv_dtype": "bf16", "context_tokens": 262_144}),
    ("llama-4-maverick", "h200-sxm", {"gpus": 8, "context_tokens": 1_048_576}),
    ("qwen3-embedding-8b", "l4", {"gpus": 1, "typical_request_tokens": 2048}),
    ("bge-reranker-v2-m3", "l4", {"gpus": 1}),
    ("qwen3-8b", "a100-80gb", {"gpus": 1, "kv_dtype": "bf16"}),
]

MISFITS: list[tuple[str, str, dict[str, Any], str]] = [
    ("glm-5.1-fp8", "h100-sxm", {"gpus": 8}, "weights"),
    ("glm-5.1-fp8", "h200-sxm", {"gpus": 4}, "weights"),
    ("glm-5.1-fp8", "h200-sxm", {"gpus": 17}, "illegal"),
    ("glm-5.1-fp8", "h200-sxm", {"layout": Layout(tensor=17)}, "illegal"),
    ("glm-5.1-fp8", "h200-sxm", {"gpus": 8, "context_tokens": 1_000_000}, "context"),
    ("deepseek-v3.2", "h100-sxm", {"gpus": 8}, "weights"),
    ("kimi-k2.5", "l4", {"gpus": 8}, "weights"),
    ("kimi-k2.5", "h100-sxm", {"gpus": 8}, "weights"),
    ("qwen3-235b-a22b-fp8", "h200-sxm", {"layout": Layout(tensor=8)}, "illegal"),
    ("qwen3-32b-fp8", "h200-sxm", {"context_tokens": 131_072}, "context"),
    ("qwen3-32b-fp8", "l4", {"gpus": 1}, "weights"),
    ("qwen3-8b", "a100-80gb", {}, "precision"),
    ("llama-3.3-70b", "h100-sxm", {"gpus": 2, "kv_dtype": "bf16", "context_tokens": 131_072}, "context"),
    ("llama-3.3-70b", "h100-sxm", {"gpus": 1}, "weights"),
    ("llama-3.1-8b", "h200-sxm", {"layout": Layout(data=2, expert_parallel=True)}, "illegal"),
    ("llama-3.1-405b", "h200-sxm", {"gpus": 4}, "weights"),
    ("mistral-small-4", "h100-sxm", {"gpus": 2, "context_tokens": 2_000_000}, "context"),
    ("llama-3.1-8b", "l4", {"gpus": 1, "kv_dtype": "bf16", "load": LONG}, "context"),
    ("qwen3-32b-fp8", "h200-sxm", {"gpus": 1, "max_num_seqs": 5000}, "setting"),
    ("qwen3-32b-fp8", "h200-sxm", {"gpus": 1, "replicas": 1, "load": Load(requests_per_s=20)}, "overload"),
    (
        "qwen3-32b-fp8",
        "h200-sxm",
        {"gpus": 1, "replicas": 2, "load": CHAT, "slo": Slo.of(itl_p95_ms=15)},
        "itl",
    ),
    (
        "qwen3-32b-fp8",
        "h200-sxm",
        {"gpus": 1, "replicas": 2, "load": CHAT, "slo": Slo.of(ttft_p95_ms=900)},
        "ttft",
    ),
    (
        "glm-5.1-fp8",
        "h200-sxm",
        {
            "gpus": 8,
            "replicas": 1,
            "load": replace(CHAT, requests_per_s=0.7),
            "slo": Slo.of(ttft_p95_ms=1500, itl_p95_ms=60),
        },
        "ttft",
    ),
    ("qwen3-8b", "l4", {"load": CHAT, "gpus": 1, "replicas": 1, "slo": Slo.of(itl_p95_ms=20)}, "overload"),
]


def test_there_are_enough_cases() -> None:
    assert len(FITS) + len(MISFITS) >= 30


@pytest.mark.parametrize(("name", "gpu", "more"), FITS)
def test_what_fits(name: str, gpu: str, more: dict[str, Any]) -> None:
    proof = prove(order(name, gpu, **more))
    assert proof.problems == []
    assert nearest(proof) == []


@pytest.mark.parametrize(("name", "gpu", "more", "kind"), MISFITS)
def test_what_does_not_fit_is_refused_with_a_fix_that_works(
    name: str, gpu: str, more: dict[str, Any], kind: str
) -> None:
    proof = prove(order(name, gpu, **more))
    assert kind in {problem.kind for problem in proof.problems}
    fixes = nearest(proof)
    assert fixes, proof.problems
    for fix in fixes:
        fixed = prove(fix.order)
        assert fixed.problems == [], fix.text
        assert fix.order != proof.order
        # The numbers that a user reads are those of the order that was proven.
        if more_gpus := re.search(r"from (\d+) to (\d+) \(([+-]\d+) GPUs\)", fix.text):
            before, after, gpus = map(int, more_gpus.groups())
            assert (before, after) == (proof.order.replicas, fix.order.replicas), fix.text
            assert gpus == fixed.case.gpus - proof.case.gpus, fix.text
        if in_all := re.search(r"(\d+) GPUs in all", fix.text):
            assert int(in_all[1]) == fixed.case.gpus, fix.text


@pytest.mark.parametrize(
    ("name", "gpu", "more", "text"),
    [
        ("glm-5.1-fp8", "h100-sxm", {"gpus": 8}, "give a replica 16 GPUs (TP8 PP2)"),
        ("glm-5.1-fp8", "h200-sxm", {"gpus": 4}, "give a replica 8 GPUs (TP8)"),
        ("qwen3-8b", "a100-80gb", {}, "keep the cache in bf16"),
        ("qwen3-235b-a22b-fp8", "h200-sxm", {"layout": Layout(tensor=8)}, "lay a replica out as"),
        ("qwen3-32b-fp8", "h200-sxm", {"context_tokens": 131_072}, "shorten the context to 40,960 tokens"),
        ("qwen3-32b-fp8", "h200-sxm", {"gpus": 1, "max_num_seqs": 5000}, "lower max_num_seqs"),
        ("qwen3-32b-fp8", "h200-sxm", {"gpus": 1, "replicas": 1, "load": Load(requests_per_s=4)}, "raise replicas"),
    ],
)
def test_the_nearest_fix_is_the_obvious_one(name: str, gpu: str, more: dict[str, Any], text: str) -> None:
    assert nearest(prove(order(name, gpu, **more)))[0].text.startswith(text)


def test_a_target_that_no_hardware_keeps_is_answered_with_one_that_this_keeps() -> None:
    wanted = order("llama-3.1-405b", load=CHAT, slo=Slo.of(itl_p95_ms=2))
    fixes = nearest(prove(wanted))
    assert any(fix.text.startswith("raise itl_p95_ms to") for fix in fixes)


@pytest.mark.parametrize(
    ("name", "layout", "why"),
    [
        ("qwen3-235b-a22b-fp8", Layout(tensor=8), "192, which is not whole blocks of 128"),
        ("qwen3-235b-a22b-fp8", Layout(tensor=8, expert_parallel=True), ""),
        ("qwen3-32b-fp8", Layout(tensor=3), "64 heads cannot be divided"),
        ("llama-3.3-70b", Layout(data=2, expert_parallel=True), "models with experts"),
        ("gpt-oss-120b", Layout(data=2), ""),
        ("glm-5.1-fp8", Layout(tensor=2, data=4), ""),
        ("qwen3-235b-a22b-fp8", Layout(data=8), "over TP1 x DP8 is 192, which is not whole blocks of 128"),
        ("bge-reranker-v2-m3", Layout(pipeline=32), "24 layers are fewer"),
        ("glm-5.1-fp8", Layout(tensor=8), ""),
    ],
)
def test_layouts_that_the_engine_refuses(name: str, layout: Layout, why: str) -> None:
    assert (why in why_illegal(catalogue.load(name), layout)) if why else not why_illegal(catalogue.load(name), layout)
