"""Prompts and answers on replicas of their own: three published shapes, and what the estimate is made of."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stacks.facts import catalogue
from stacks.facts.catalogue import Quantisation
from stacks.plan.advice import advise, split_line, split_of
from stacks.plan.block import block
from stacks.proof.case import Case
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.disaggregation import (
    Prefill,
    Split,
    decode_order,
    fewest,
    one_is_enough,
    prefill_case,
    smallest_replica,
)
from stacks.proof.layouts import Layout
from stacks.proof.order import Order
from stacks.proof.proof import prove
from stacks.proof.split_verdict import SplitVerdict, compare
from tests.unit.proof.proof_orders import CHAT, TARGETS, fixed, order
from tests.unit.proof.scheduler_simulation import simulate

pytestmark = pytest.mark.row("001.20", "001.28")

# Tokens per second of a prefill worker there, by github.com/llm-d/llm-d guides/pd-disaggregation (peakPrefillThroughput
# of vLLM 0.27 on H200).
THEIR_PREFILL_TOKENS_PER_S = 33_821


def pools(wanted: Order, prefill: Layout, decode: Layout, prefills: int, decodes: int) -> Split:
    return Split(Prefill(prefill_case(wanted, prefill), prefills), Case(decode_order(wanted), decode, decodes))


def compared(wanted: Order) -> SplitVerdict:
    verdict = compare(wanted)
    assert verdict is not None
    return verdict


def gpus(wanted: Order) -> tuple[int, int]:
    """Of the joint layout and of the split, where both hold."""
    verdict = compared(wanted)
    assert not verdict.joint.problems
    assert verdict.split is not None
    return verdict.joint.gpus, verdict.split.gpus


def test_the_guides_split_answers_sooner_although_its_first_tokens_are_later() -> None:
    """gpt-oss-120b on 16 H200, 5,000 / 250 tokens at 45 requests/s, eight TP1 for prompts and two TP4 for answers.

    Published (llm-d guides/pd-disaggregation): mean latency 6.7 -> 2.78 s, p95 10.2 -> 3.38 s, mean TTFT 0.53 ->
    1.16 s, mean ITL 25 -> 4.9 ms. Our prefill of MXFP4 is slower than theirs, and 45 requests/s are more than eight of
    our GPUs compute; so the load is the one that keeps them as busy as theirs. Signs and magnitudes agree; the joint
    layout's latency is 0.6 of the published one, and so the gain is less than theirs.
    """
    calm = order("gpt-oss-120b", load=fixed(5000, 250, 1.0))
    ours = 5000 / Prefill(prefill_case(calm, Layout()), 8).mean_s
    assert 0.6 < ours / THEIR_PREFILL_TOKENS_PER_S < 0.9
    wanted = replace(calm, load=fixed(5000, 250, 45 * ours / THEIR_PREFILL_TOKENS_PER_S))
    split = pools(wanted, Layout(), Layout(tensor=4), 8, 2)
    joint = Case(wanted, Layout(), 16).steady
    assert split.gpus == 16
    assert split.prefill.busy == pytest.approx(45 * 5000 / 8 / THEIR_PREFILL_TOKENS_PER_S)
    joint_e2e = joint.ttft.total + joint.gaps * joint.itl_mean_s
    split_e2e = split.ttft_mean_s + split.decode.steady.gaps * split.decode.steady.itl_mean_s
    assert split_e2e < 0.8 * joint_e2e
    assert 2.78 / 1.5 < split_e2e < 2.78 * 1.5
    assert 6.7 / 2 < joint_e2e < 6.7 * 1.5
    assert joint.ttft.total < split.ttft_mean_s
    assert 0.53 / 2 < joint.ttft.total < 0.53 * 1.5
    assert 1.16 / 2 < split.ttft_mean_s < 1.16 * 1.5
    assert joint.itl_mean_s > 1.5 * split.decode.steady.itl_mean_s
    assert split.decode.steady.itl_mean_s == pytest.approx(4.9e-3, rel=0.8)


def test_a_tight_gap_between_tokens_makes_the_split_cheaper() -> None:
    """Qwen3-32B in FP8 on H200, 4,000 / 500 tokens, TTFT 300 ms and TPOT 10 ms: 1.7 times the tokens per GPU.

    Published (ai-dynamo/aiconfigurator README): 813 instead of 479 tokens/s per GPU on 32 GPUs, TensorRT-LLM, four TP1
    and one TP4 beside TP4. Weights have one scale per tensor there; the catalogue's blocks cannot reach 10 ms. Targets
    are medians, as the source knows no queues.
    """
    model = catalogue.load("qwen3-32b-fp8")
    scaled = model.model_copy(update={"quantisation": Quantisation(format="fp8", parts=("mixers", "dense"))})
    targets = Slo.of(ttft_p50_ms=300, tpot_p50_ms=10)
    wanted = replace(order("qwen3-32b-fp8", load=fixed(4000, 500, 30), slo=targets, one_node=True), model=scaled)
    joint, split = gpus(wanted)
    assert joint / split == pytest.approx(1.7, rel=0.15)
    assert 30 * 500 / split == pytest.approx(813, rel=0.35)
    assert 30 * 500 / joint == pytest.approx(479, rel=0.35)
    assert compared(wanted).better


def agents(name: str, hit: float, **targets_ms: float | None) -> Order:
    """Prompts of 8 K and answers of 1 K tokens, 20 a second."""
    return order(name, load=fixed(8192, 1024, 20, hit=hit), slo=Slo.of(**targets_ms), one_node=True)


@pytest.mark.parametrize("name", ["qwen3-32b-fp8", "gpt-oss-120b"])
def test_with_cached_prompts_and_quick_first_tokens_the_joint_layout_is_ahead(name: str) -> None:
    """Three quarters of 8 K prompts cached, on vLLM: 1.2 to 1.35 for the joint layout (AIConfigurator 0.12)."""
    joint, split = gpus(agents(name, 0.75, ttft_p95_ms=500, tpot_p50_ms=50))
    assert 1.1 < split / joint < 1.45


def test_cached_prompts_take_most_of_what_a_split_gains() -> None:
    joint, split = gpus(agents("qwen3-32b-fp8", 0.0, tpot_p50_ms=30))
    cached_joint, cached_split = gpus(agents("qwen3-32b-fp8", 0.75, tpot_p50_ms=30))
    assert joint / split > 1.5
    assert 1.0 < cached_joint / cached_split < joint / split - 0.3


@pytest.mark.parametrize("name", ["qwen3-32b-fp8", "glm-5.1-fp8"])
def test_where_the_estimate_does_not_agree_with_cached_prompts(name: str) -> None:
    """With a target of TPOT alone the split stays ahead here, by 1.1 to 1.5, and no source has it so.

    Its pools are sized without the losses that the source takes off (0.9 for prompts, 0.92 for answers).
    """
    joint, split = gpus(agents(name, 0.75, tpot_p50_ms=30))
    assert 1.1 < joint / split < 1.6


@pytest.mark.parametrize(("times", "better"), [(1.4, False), (1.6, True)])
def test_with_as_many_gpus_a_split_is_better_from_one_and_a_half_times_the_gap_on(times: float, better: bool) -> None:
    def case(gap_s: float) -> Any:
        return SimpleNamespace(problems=[], gpus=16, steady=SimpleNamespace(itl_quantile_s=lambda _: gap_s))

    split: Any = SimpleNamespace(gpus=16, decode=case(0.02))
    assert SplitVerdict(case(0.02 * times), split).better is better


def test_a_prefill_replica_is_one_queue() -> None:
    """Equal prompts at random: half of busy / (1 - busy) x a prompt is waited (Pollaczek and Khinchine)."""
    wanted = order("gpt-oss-120b", load=fixed(5000, 250, 10))
    prefill = Prefill(prefill_case(wanted, Layout()), 4)
    busy = 10 / 4 * prefill.mean_s
    assert prefill.busy == pytest.approx(busy)
    assert prefill.sojourn_mean_s == pytest.approx(prefill.mean_s * (1 + busy / (1 - busy) / 2), rel=1e-3)
    steps = prefill.case.roofline
    assert prefill.mean_s == pytest.approx(steps.step_s(prefill=5000, reach=2500), rel=0.1)


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("gpt-oss-120b", fixed(5000, 250, 1.0)),
        ("llama-3.1-8b", Load(requests_per_s=1.0, prompt_tokens=Spread(4000, 9000))),
    ],
)
def test_one_prefill_replica_waits_as_long_as_a_simulated_one(name: str, load: Load) -> None:
    """Within 1.2 at 60 % busy. Behind a picker that counts requests, four of them do not keep a prompt longer."""
    alone = Prefill(prefill_case(order(name, load=load), Layout()), 1)
    busy = replace(load, requests_per_s=0.6 / alone.mean_s)
    prefill = Prefill(prefill_case(order(name, load=busy), Layout()), 1)
    case = prefill.case
    ones = prefill.case.order.load
    assert ones is not None

    def simulated_s(engines: int) -> float:
        many = replace(ones, requests_per_s=busy.requests_per_s * engines)
        requests, size = 4000 * engines, case.batched_tokens
        run = simulate(case.roofline, many, engines=engines, slots=case.slots, batched_tokens=size, requests=requests)
        return run.ttft.mean

    assert simulated_s(1) == pytest.approx(prefill.sojourn_mean_s, rel=0.2)
    assert simulated_s(4) < 1.15 * prefill.sojourn_mean_s


def test_the_cache_of_a_prompt_moves_at_the_networks_speed() -> None:
    """Llama 3.1 8B, 32 layers x 8 heads x 128 x 2 in 16 bits: 131,072 B a token over 50 GB/s x 0.691."""
    wanted = order("llama-3.1-8b", kv_dtype="bf16", load=fixed(4000, 100, 1.0))
    split = pools(wanted, Layout(), Layout(), 1, 1)
    assert split.transfer_s == pytest.approx(4000 * 131_072 / (50e9 * 0.691), rel=0.01)
    assert split.network_busy == pytest.approx(split.transfer_s)
    four = pools(wanted, Layout(tensor=4), Layout(tensor=4), 1, 1)
    assert four.transfer_s == pytest.approx(split.transfer_s / 4)
    # The smaller side bounds it.
    assert pools(wanted, Layout(), Layout(tensor=4), 1, 1).transfer_s == pytest.approx(split.transfer_s)


def test_first_tokens_pay_for_prompt_transfer_and_a_decode_step() -> None:
    wanted = order("llama-3.1-8b", load=fixed(4000, 100, 1.0))
    split = pools(wanted, Layout(), Layout(), 1, 1)
    steady = split.decode.steady
    assert split.ttft_mean_s == pytest.approx(
        steady.ttft.total + split.prefill.sojourn_mean_s + split.transfer_s, rel=1e-6
    )
    assert split.ttft_quantile_s(0.99) > split.ttft_quantile_s(0.5)


def test_a_network_that_caches_fill_holds_nothing() -> None:
    """One decode GPU takes 524 MB of each prompt at 34.6 GB/s: 59 a second are 0.9 of that, whatever computes them."""
    for rate, holds in ((55, True), (63, False)):
        wanted = order("llama-3.1-8b", kv_dtype="bf16", load=fixed(4000, 2, rate))
        split = pools(wanted, Layout(), Layout(), 100, 1)
        assert split.prefill.busy < 0.5
        assert split.decode.steady.stable
        assert split.holds(wanted.slo) is holds


def test_gaps_of_the_split_carry_no_prompts() -> None:
    """Steps of the decode pool are decode steps: p99 is near the mean, where a joint replica's has a whole chunk."""
    wanted = order("qwen3-32b-fp8", load=replace(CHAT, requests_per_s=8.0), one_node=True)
    split = fewest(replace(wanted, slo=TARGETS))
    assert split is not None
    steady = split.decode.steady
    joint = Case(wanted, split.decode.layout, math.ceil(split.gpus / split.decode.layout.gpus)).steady
    assert steady.itl_quantile_s(0.99) < 2 * steady.itl_mean_s
    assert joint.itl_quantile_s(0.99) > 3 * steady.itl_quantile_s(0.99)


def test_the_fewest_replicas_hold_and_one_less_does_not() -> None:
    wanted = order("qwen3-32b-fp8", load=replace(CHAT, requests_per_s=12.0), slo=TARGETS, one_node=True)
    split = fewest(wanted)
    assert split is not None
    assert split.holds(wanted.slo)
    assert split.prefill.replicas > 1
    fewer = Split(Prefill(split.prefill.case, split.prefill.replicas - 1), split.decode)
    assert not fewer.holds(wanted.slo)


def test_without_a_target_of_ttft_prefill_is_as_busy_as_published_pools_and_no_more() -> None:
    """45 x 5,000 tokens a second over eight workers of 33,821: 0.83. One replica less would be busier."""
    split = fewest(agents("qwen3-32b-fp8", 0.0, tpot_p50_ms=30))
    assert split is not None
    most = 45 * 5000 / 8 / THEIR_PREFILL_TOKENS_PER_S
    assert split.prefill.busy <= round(most, 2)
    assert Prefill(split.prefill.case, split.prefill.replicas - 1).busy > most


def test_a_split_is_named_where_no_joint_layout_holds() -> None:
    """A gap at p99 that no chunk of a prompt fits into, and a TTFT that needs chunks.

    On very many replicas prompts are rarer than p99; so many requests come that this takes more than are searched.
    """
    load = Load(requests_per_s=200.0, prompt_tokens=Spread(8000, 60_000), answer_tokens=Spread(200, 600))
    slo = Slo.of(ttft_p50_ms=580, itl_p99_ms=20)
    wanted = order("llama-3.3-70b-fp8", load=load, slo=slo, one_node=True)
    verdict = compared(wanted)
    assert verdict.joint.problems
    assert verdict.split is not None
    assert verdict.better
    assert " would hold it; ITL p99 " in verdict.line


def test_one_replica_that_is_enough_is_not_split() -> None:
    verdict = compared(order("gpt-oss-120b", load=CHAT, slo=TARGETS, one_node=True))
    assert verdict.joint.gpus < 2 * smallest_replica(verdict.joint.order)
    assert verdict.split is None
    assert not verdict.better
    assert verdict.line == ""
    assert "two pools take at least 2 GPUs, and the load needs 1 GPU" in verdict.reasons


@pytest.mark.parametrize("name", ["gpt-oss-120b", "qwen3-32b-fp8", "deepseek-v3.2", "gemma-3-27b"])
@pytest.mark.parametrize("rate", [0.05, 1.0, 20.0, 100.0])
def test_where_one_replica_is_enough_no_search_would_find_a_better_split(name: str, rate: float) -> None:
    wanted = order(name, load=replace(CHAT, requests_per_s=rate), slo=TARGETS, one_node=True, replicas=2)
    verdict = compare(wanted)
    assert not (one_is_enough(wanted) and verdict is not None and verdict.better)
    assert one_is_enough(wanted) == (rate <= 1.0) or rate == 20.0


@pytest.mark.parametrize(
    "wanted",
    [
        order("gpt-oss-120b"),
        order("bge-m3", load=Load(requests_per_s=50, answer_tokens=Spread(1, 1))),
        order("gpt-oss-120b", load=Load(requests_per_s=50, answer_tokens=Spread(1, 1))),
        order("glm-5.1-fp8", "h100-sxm", load=CHAT, one_node=True),
    ],
)
def test_without_load_answers_or_room_there_is_no_verdict(wanted: Order) -> None:
    assert compare(wanted) is None


def test_the_block_names_a_split_only_where_it_is_better() -> None:
    slo = Slo.of(tpot_p50_ms=30)
    wanted = order("qwen3-32b-fp8", load=fixed(8192, 1024, 10, hit=0.75), slo=slo, one_node=True, simple=True)
    proof, verdict = prove(wanted), compared(wanted)
    assert verdict.better
    text = block(proof, split=verdict)
    last = text.splitlines()[-1]
    assert last.startswith("  split       ")
    assert last.endswith("; not deployed  [estimated]")
    assert f"GPUs, not {verdict.joint.gpus};" in last
    assert len(last) <= 180
    small = compared(order("gpt-oss-120b", load=CHAT, slo=TARGETS, one_node=True))
    assert "split" not in block(prove(small.joint.order), split=small)
    # The deployed layout is the same with and without it.
    assert proof.case.layout == Layout(tensor=proof.case.layout.tensor)


def test_advice_says_whether_a_split_would_be_better_and_why() -> None:
    wanted = order("qwen3-32b-fp8", load=fixed(8192, 1024, 10, hit=0.75), one_node=True, simple=True)
    tight = split_of(advise(replace(wanted, slo=Slo.of(tpot_p50_ms=30)), {"h200-sxm": None}))
    loose = split_of(advise(replace(wanted, slo=Slo.of(ttft_p95_ms=1000, tpot_p50_ms=50)), {"h200-sxm": None}))
    assert tight is not None
    assert loose is not None
    assert split_line(tight).startswith("split: yes, but it is not deployed. ")
    assert split_line(loose).startswith("split: no. ")
    for line in map(split_line, (tight, loose)):
        assert "prompts, 75 % of them cached, take " in line
        assert "moving a mean prompt's cache takes 31.1 ms" in line
        assert line.endswith("[estimated]")
    assert split_of([]) is None


def test_where_no_kind_holds_the_sites_own_is_split() -> None:
    wanted = order("qwen3-32b-fp8", load=CHAT, slo=Slo.of(ttft_p95_ms=1), one_node=True)
    verdict = split_of(advise(wanted, {"l4": None, "h200-sxm": None, "b200": None}))
    assert verdict is not None
    assert verdict.joint.order.gpu == "h200-sxm"
    assert split_line(verdict) == "split: no. no split carries the load within the targets"
