"""Impossible orders: a fix that is proven, or how far this hardware gets and what was tried."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.fixes import nearest, out_of_reach, tried
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("opening 1")

BUSY = Load(requests_per_s=2.0, prompt_tokens=Spread(1000, 6000), answer_tokens=Spread(250, 1000), prefix_hit=0.3)
FLOOD = Load(requests_per_s=200.0, prompt_tokens=Spread(1000, 6000), answer_tokens=Spread(250, 1000), prefix_hit=0.3)


@pytest.mark.parametrize(
    ("name", "gpu", "slo", "load", "replicas"),
    [
        ("qwen3-32b-fp8", "h200-sxm", Slo.of(ttft_p95_ms=20, itl_p95_ms=1), BUSY, 2),
        ("qwen3-32b-fp8", "h200-sxm", Slo.of(ttft_p95_ms=20, itl_p95_ms=1), BUSY, None),
        ("qwen3-32b-fp8", "h200-sxm", Slo.of(ttft_p95_ms=20), FLOOD, 2),
        ("qwen3-32b-fp8", "h200-sxm", Slo.of(itl_p95_ms=1), FLOOD, 2),
        ("llama-3.1-405b", "h200-sxm", Slo.of(ttft_p95_ms=100, itl_p95_ms=10), BUSY, 2),
        ("llama-3.1-405b", "l4", Slo.of(ttft_p95_ms=20, itl_p95_ms=1), BUSY, 2),
    ],
)
def test_targets_out_of_reach_are_answered_with_a_proven_fix(
    name: str, gpu: str, slo: Slo, load: Load, replicas: int | None
) -> None:
    """Each of these had no fix at all, as raising one target moved the other beyond its own."""
    wanted = order(name, gpu, slo=slo, load=load, replicas=replicas, one_node=True, simple=True)
    proof = prove(wanted)
    assert not proof.holds
    fixes = nearest(proof)
    assert fixes
    assert all(prove(fix.order).holds for fix in fixes)
    if gpu == "h200-sxm":
        assert fixes[0].text.startswith(("raise ", "lower ")), "what the site has comes before another kind of GPU"
    raised = [fix for fix in fixes if "_p95_ms to " in fix.text]
    assert raised, [fix.text for fix in fixes]
    for key, value in re.findall(r"(\w+_p95_ms) to ([\d.e+]+)", raised[0].text):
        assert raised[0].order.slo.by_key[key] == float(value)


def test_the_lowest_that_the_hardware_reaches_is_named() -> None:
    wanted = order("qwen3-32b-fp8", slo=Slo.of(ttft_p95_ms=20, itl_p95_ms=1), load=BUSY, replicas=2, one_node=True)
    text = out_of_reach(prove(wanted))
    lowest = {name: float(value) for name, value in re.findall(r"(\w+) p95 ([\d.]+) ms", text)}
    assert set(lowest) == {"TTFT", "ITL"}
    assert lowest["ITL"] > 1
    assert lowest["TTFT"] > 20


def test_a_target_within_reach_is_not_called_out_of_reach() -> None:
    wanted = order("qwen3-32b-fp8", slo=Slo.of(ttft_p95_ms=900), load=FLOOD, replicas=2, one_node=True)
    assert not prove(wanted).holds
    assert out_of_reach(prove(wanted)) == ""


def test_a_size_that_cannot_be_is_named_without_nonsense() -> None:
    """What remains for weights was a negative number of gigabytes."""
    proof = prove(order("glm-5.1-fp8", layout=Layout(tensor=8), max_num_batched_tokens=819_200_000))
    (problem,) = proof.problems
    assert problem.kind == "setting"
    assert " -" not in problem.text
    assert re.search(r"^max_num_batched_tokens 819,200,000: the engine keeps [\d,.]+ GB per GPU", problem.text)
    assert nearest(proof)[0].text == "leave max_num_batched_tokens to the proof"


def test_a_cache_in_fp8_is_proposed_where_the_hardware_has_it() -> None:
    """On an A100 the same room is missing, and FP8 is no way out."""
    long = Load(requests_per_s=4.0, prompt_tokens=Spread(6000, 30_000), answer_tokens=Spread(500, 2000))
    proof = prove(order("qwen3-8b", "l4", kv_dtype="bf16", layout=Layout(tensor=1), load=long))
    assert "requests of 32,000 tokens are asked for" in proof.problems[0].text
    assert "keep the cache in fp8" in [fix.text for fix in nearest(proof)]
    longer = replace(long, prompt_tokens=Spread(6000, 36_000))
    without = prove(order("llama-3.3-70b", "a100-80gb", kv_dtype="bf16", layout=Layout(tensor=2), load=longer))
    assert "requests of 38,000 tokens are asked for" in without.problems[0].text
    assert "keep the cache in fp8" not in [fix.text for fix in nearest(without)]


def test_without_a_fix_the_words_say_what_was_tried() -> None:
    proof = prove(order("kimi-k2.5", "l4", load=BUSY, slo=Slo.of(ttft_p95_ms=1)))
    assert "tried without success: other layouts, more replicas, raised targets, a100-80gb" in tried(proof)


def test_more_replicas_of_another_layout_are_named_with_it() -> None:
    """The site sets the number alone, and the proof then chooses the layout that was counted."""
    wanted = order(
        "qwen3-32b-fp8", slo=Slo.of(itl_p95_ms=60, ttft_p95_ms=2000), load=FLOOD, replicas=2, one_node=True, simple=True
    )
    proof = prove(wanted)
    fix = nearest(proof)[0]
    assert fix.proof.case.layout != proof.case.layout
    more = fix.gpus - proof.case.gpus
    assert (
        fix.text == f"raise replicas from 2 to {fix.proof.case.replicas} of {fix.proof.case.layout} ({more} GPUs more)"
    )
    assert prove(replace(wanted, replicas=fix.proof.case.replicas)).case.layout == fix.proof.case.layout


def test_what_does_not_fit_is_reported_in_sums() -> None:
    """Weights, and what the engine keeps free: what is needed is both, and what the GPU offers is less."""
    (problem,) = prove(order("llama-3.3-70b", "h100-sxm", gpus=1)).problems
    needed, weights, reserved, offered = (float(size) for size in re.findall(r"(\d+\.\d) GB", problem.text))
    assert needed == pytest.approx(weights + reserved, abs=0.11)
    assert needed > offered
