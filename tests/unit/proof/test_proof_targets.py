"""Targets of latency: what bounds what, what is reported as missed, and which chunk keeps them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from stacks.proof.case import Case
from stacks.proof.demand import METRICS, PERCENTS, Load, Slo, Spread
from stacks.proof.fixes import nearest
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from stacks.proof.replica import CHUNKS
from tests.unit.proof.proof_orders import CHAT, order

pytestmark = pytest.mark.row("001.03", "003.15", "003.16", "opening 1")

BUSY = replace(CHAT, requests_per_s=2.0)


def one_gpu(load: Load = BUSY, **more: Any) -> Case:
    return Case(order("qwen3-32b-fp8", load=load, **more), Layout(), 2)


def test_a_target_is_known_by_its_key_alone() -> None:
    slo = Slo.of(itl_p99_ms=300, ttft_p50_ms=200, itl_p95_ms=50)
    assert [target.key for target in slo.targets] == ["ttft_p50_ms", "itl_p95_ms", "itl_p99_ms"]
    assert slo.but(itl_p99_ms=None, tpot_p50_ms=40) == Slo.of(ttft_p50_ms=200, itl_p95_ms=50, tpot_p50_ms=40)
    with pytest.raises(ValueError, match="no target is called itl_p90_ms; allowed: itl_p50_ms, "):
        Slo.of(itl_p90_ms=1)


def test_the_mean_gap_is_bound_by_the_tightest_and_the_queue_by_the_longest() -> None:
    slo = Slo.of(itl_p50_ms=30, itl_p99_ms=300, tpot_p95_ms=40, ttft_p50_ms=500, ttft_p99_ms=4000)
    assert slo.mean_step_ms() == 30
    assert slo.longest_ttft_ms == 4000
    assert Slo.of(ttft_p95_ms=2000).mean_step_ms() is None


def test_no_target_of_gaps_holds_while_their_mean_is_above_it() -> None:
    """Half of the gaps, or 19 of 20, are short steps without a prompt; the stream is slower than that."""
    steady = one_gpu().steady
    mean_ms, half_ms = steady.itl_mean_s * 1e3, steady.itl_quantile_s(0.5) * 1e3
    assert half_ms < mean_ms
    between = (half_ms + mean_ms) / 2
    (problem,) = one_gpu(slo=Slo.of(itl_p50_ms=between), max_num_batched_tokens=8192, max_num_seqs=150).problems
    assert problem.kind == "itl"
    assert problem.text.startswith("ITL p50 is ")
    assert f"and the mean time between tokens {mean_ms:,.0f} ms; target {between:,.0f} ms" in problem.text
    assert not one_gpu(slo=Slo.of(itl_p50_ms=mean_ms * 1.01), max_num_batched_tokens=8192, max_num_seqs=150).problems


def test_what_a_target_of_gaps_is_raised_to_is_above_their_mean() -> None:
    steady = one_gpu().steady
    (half,) = Slo.of(itl_p50_ms=1).targets
    (late,) = Slo.of(itl_p99_ms=1).targets
    assert steady.quantile_s("itl", 0.5) < steady.itl_mean_s < steady.quantile_s("itl", 0.99)
    assert steady.figure_s(half) == steady.itl_mean_s
    assert steady.figure_s(late) == steady.quantile_s("itl", 0.99)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("percent", PERCENTS)
def test_each_missed_target_is_named_with_its_figure_and_a_fix_keeps_it(metric: str, percent: int) -> None:
    base = order("qwen3-32b-fp8", load=BUSY, layout=Layout(), replicas=2)
    free = prove(replace(base, max_num_seqs=150, max_num_batched_tokens=8192))
    figure = free.serving[f"{metric}_p{percent}"].value
    key = f"{metric}_p{percent}_ms"
    missed = prove(replace(free.order, slo=Slo.of(**{key: figure * 0.95})))
    assert [problem.kind for problem in missed.problems] == [metric]
    assert missed.problems[0].text.startswith(f"{metric.upper()} p{percent} is ")
    fixes = nearest(missed)
    assert fixes
    assert all(prove(fix.order).holds for fix in fixes)


def test_a_batch_that_a_target_keeps_small_is_named_where_it_carries_too_little() -> None:
    case = one_gpu(slo=Slo.of(itl_p50_ms=25))
    (problem,) = case.problems
    assert problem.kind == "overload"
    assert f"; {case.slots} at once per scheduler, as a step of more takes longer than 25 ms" in problem.text


def test_several_missed_targets_are_all_named() -> None:
    tight = Slo.of(ttft_p50_ms=1, ttft_p99_ms=2, itl_p50_ms=1, tpot_p95_ms=1)
    assert [problem.text.split(" is ")[0] for problem in one_gpu(slo=tight).problems] == [
        "TTFT p50",
        "TTFT p99",
        "ITL p50",
        "TPOT p95",
    ]


def test_every_percentile_has_its_own_quantile() -> None:
    """Log-normal lengths and queues: the 99th is well beyond the 95th, for each metric."""
    steady = one_gpu().steady
    for metric in METRICS:
        p50, p95, p99 = (steady.quantile_s(metric, percent / 100) for percent in PERCENTS)
        assert p50 < p95
        assert p99 > 1.2 * p95


@pytest.mark.row("001.28", "000.15")
@pytest.mark.parametrize(
    "slo",
    [
        Slo.of(itl_p99_ms=150, ttft_p95_ms=8000),
        Slo.of(itl_p99_ms=200),
        Slo.of(itl_p99_ms=2000, tpot_p99_ms=200),
    ],
    ids=["smooth", "less smooth", "not smooth"],
)
def test_the_chunk_is_the_largest_that_keeps_every_target(slo: Slo) -> None:
    """Also where the percentile that a site would look at first cannot see it."""
    chosen = one_gpu(slo=slo)
    kept = [size for size in CHUNKS if not one_gpu(slo=slo, max_num_batched_tokens=size).problems]
    assert chosen.batched_tokens == max(kept)
    assert not chosen.problems


@pytest.mark.row("001.28", "opening 2")
@pytest.mark.parametrize("rate", [0.3, 0.6, 1.2])
@pytest.mark.parametrize("replicas", [2, 4])
def test_neither_load_nor_replicas_move_a_chunk_with_room_to_its_targets(rate: float, replicas: int) -> None:
    """A restart costs minutes per replica."""
    slo = Slo.of(itl_p95_ms=80, itl_p99_ms=2000, ttft_p95_ms=5000)
    wanted = order("qwen3-32b-fp8", load=replace(CHAT, requests_per_s=rate), slo=slo)
    assert Case(wanted, Layout(), replicas).batched_tokens == 8192


@pytest.mark.row("001.28", "000.15")
def test_without_targets_of_gaps_prompts_get_the_largest_chunk() -> None:
    assert one_gpu(slo=Slo.of(ttft_p95_ms=5000)).batched_tokens == 8192
    assert one_gpu().batched_tokens == 8192


@pytest.mark.row("001.28")
def test_short_prompts_share_steps() -> None:
    """A prompt of 128 tokens takes a part of a step: 50 a second are carried, with 12 steps a second and less."""
    short = Load(requests_per_s=50, prompt_tokens=Spread(128, 256), answer_tokens=Spread(4, 8))
    case = Case(order("qwen3-32b-fp8", load=short), Layout(), 1)
    assert case.steady.stable
    assert case.steady.balance.per_s < short.requests_per_s


@pytest.mark.row("001.23")
def test_the_parts_of_the_time_to_the_first_token_are_its_mean() -> None:
    serving = prove(order("qwen3-32b-fp8", load=BUSY, layout=Layout(), replicas=2)).serving
    parts = ("path", "overhead", "front_end", "queue", "prefill", "decode")
    assert sum(serving[f"ttft_{part}"].value for part in parts) == pytest.approx(serving["ttft_mean"].value)
    assert all(serving[f"ttft_{part}"].value > 0 for part in (*parts, "saved"))
    cold = prove(order("qwen3-32b-fp8", load=replace(BUSY, prefix_hit=0.0), layout=Layout(), replicas=4)).serving
    assert cold["ttft_saved"].value == pytest.approx(0, abs=1e-6)


@pytest.mark.row("001.05", "000.17")
def test_a_heavy_prompt_freezes_no_stream_longer_than_a_step() -> None:
    """Small chunks make its gaps shorter and more; the longest is a step with the prompt's last full chunk."""
    proofs = {
        size: prove(order("glm-5.1-fp8", load=CHAT, layout=Layout(tensor=8), replicas=2, max_num_batched_tokens=size))
        for size in (8192, 1024)
    }
    large, small = (proof.serving for proof in proofs.values())
    assert large["heavy_prompt"].value == 65_536
    for size, proof in proofs.items():
        last = proof.case.roofline.step_s(prefill=size, reach=65_536 - size)
        assert proof.serving["heavy_itl_p99"].value / 1e3 == pytest.approx(last, rel=0.05)
    assert small["heavy_itl_p99"].value < large["heavy_itl_p99"].value / 4
    assert small["heavy_lasts"].value > large["heavy_lasts"].value
    short = prove(order("qwen3-32b-fp8", load=CHAT, layout=Layout(), replicas=2)).serving
    assert short["heavy_prompt"].value == 40_960 - 4096


@pytest.mark.parametrize("rate", [1e-320, 1e-9, 1e9, 1e300])
@pytest.mark.parametrize("answer", [Spread(1, 1), Spread(1, 1e6), Spread(400, 2000)])
@pytest.mark.parametrize("prompt", [Spread(1, 1), Spread(1, 1e6), Spread(40_000, 40_001)])
@pytest.mark.parametrize("model", ["qwen3-32b-fp8", "gpt-oss-120b"])
def test_loads_at_the_ends_of_what_can_be_declared_have_an_answer(
    model: str, rate: float, prompt: Spread, answer: Spread
) -> None:
    load = Load(requests_per_s=rate, prompt_tokens=prompt, answer_tokens=answer, prefix_hit=1.0)
    slo = Slo.of(itl_p99_ms=100, ttft_p50_ms=100, tpot_p95_ms=100)
    case = Case(order(model, load=load, slo=slo), Layout(), 2)
    assert isinstance(case.load_problems, list)
    steady = case.steady
    figures = [steady.mean_s(metric) for metric in METRICS]
    figures += [steady.quantile_s(metric, percent / 100) for metric in METRICS for percent in PERCENTS]
    assert all(figure >= 0 for figure in figures)
    assert all(math.isfinite(figure) for figure in figures) == steady.stable


def test_a_target_of_gaps_refuses_no_model_without_gaps() -> None:
    """An embedding is one answer: nothing comes after its first token."""
    load = Load(requests_per_s=20, prompt_tokens=Spread(500, 2000))
    wanted = order("qwen3-embedding-8b", load=load, layout=Layout(), replicas=1, slo=Slo.of(itl_p95_ms=1))
    assert prove(wanted).holds
    assert not prove(replace(wanted, slo=Slo.of(ttft_p95_ms=1))).holds
