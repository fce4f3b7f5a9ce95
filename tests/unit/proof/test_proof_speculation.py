"""Speculative decoding in the proof: tokens of a step, what verifying and drafting take, and when they are a loss."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest

from stacks.facts import catalogue
from stacks.facts.catalogue import FullAttention
from stacks.facts.hardware import GPUS
from stacks.plan.block import block
from stacks.proof.demand import Load, Prices, Slo, Spread
from stacks.proof.drafts import SpeculativeRoofline
from stacks.proof.gains import gains, without_drafts
from stacks.proof.layouts import Layout
from stacks.proof.money import work
from stacks.proof.proof import Proof
from stacks.proof.roofline import CALIBRATION, Roofline
from stacks.proof.saturation import Mix, saturation
from stacks.proof.speculation import Method, Speculation, drafter, expected_tokens
from tests.unit.proof.proof_orders import CHAT, case_of, drafting, fixed

pytestmark = pytest.mark.row("001.22", "002.08", "003.03")

PAGE = Path(__file__).parents[3] / "docs" / "drafts.md"
ONE = Layout()
EIGHT = Layout(tensor=8)
SMALL = catalogue.load("qwen3-0.6b")
# Requests of a few hundred tokens, whose caches are small beside the weights: many run, and steps compute.
SHORT = Load(requests_per_s=20.0, prompt_tokens=Spread(100, 200), answer_tokens=Spread(100, 200))


# Model, what drafts for it, layout.
KINDS: list[tuple[str, Method, Layout]] = [
    ("qwen3-32b-fp8", "ngram", Layout(tensor=2)),
    ("qwen3-32b-fp8", "draft", Layout(tensor=2)),
    ("qwen3-30b-a3b-fp8", "ngram", ONE),
    ("gpt-oss-120b", "ngram", ONE),
    ("deepseek-v3", "mtp", EIGHT),
    ("deepseek-v3.2", "mtp", Layout(data=8, expert_parallel=True)),
    ("qwen3-next-80b-a3b", "mtp", Layout(tensor=4)),
    ("qwen3.5-122b-a10b", "mtp", Layout(tensor=4)),
]


@pytest.mark.parametrize(
    ("acceptance", "drafted", "operations", "speed"),
    [(0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44), (0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71),
     (0.9, 10, 1.60, 6.86)],
)  # fmt: skip
def test_tokens_of_a_step_are_the_published_ones(
    acceptance: float, drafted: int, operations: float, speed: float
) -> None:
    """Table 1 of Leviathan, Kalman and Matias 2023 (arXiv 2211.17192), of drafts that cost nothing."""
    assert expected_tokens(acceptance, drafted) == pytest.approx(speed, abs=0.006)
    assert (drafted + 1) / expected_tokens(acceptance, drafted) == pytest.approx(operations, abs=0.006)


def test_one_draft_layer_gives_what_its_makers_published() -> None:
    """DeepSeek-V3 technical report (arXiv 2412.19437), 5.4.3: 85 to 90 % of second tokens accepted, 1.8 x the TPS."""
    assert [expected_tokens(acceptance, 1) for acceptance in (0.85, 0.9)] == pytest.approx([1.85, 1.9])
    cases = [case_of("deepseek-v3", drafting("mtp", 1, acceptance), EIGHT, load=CHAT) for acceptance in (0.85, 0.9)]
    for running in (1, 16, 64, 200):
        low, high = (without_drafts(case).token_s(running) / case.token_s(running) for case in cases)
        # The step with its draft takes longer, so the gain is below the tokens of a step; the makers' is within 1.3.
        assert 1.8 / 1.3 < low < high < 1.8


def test_all_accepted_is_one_more_than_drafted_and_none_is_one() -> None:
    assert expected_tokens(1.0, 5) == 6
    assert expected_tokens(0.0, 5) == 1


@pytest.mark.parametrize(("name", "method", "layout"), KINDS)
def test_more_acceptance_is_never_slower(name: str, method: Method, layout: Layout) -> None:
    cases = [case_of(name, drafting(method, 2, a), layout, load=CHAT) for a in (0.0, 0.3, 0.6, 0.9, 0.99)]
    for running in (1, 16, 128):
        times = [case.token_s(running) for case in cases]
        assert times == sorted(times, reverse=True)
    capacities = [Proof(case).saturation_requests_per_s for case in cases]
    assert capacities == sorted(capacities)
    waits = [case.steady.mean_s("tpot") for case in cases]
    assert waits == sorted(waits, reverse=True)


@pytest.mark.parametrize(("name", "method", "layout"), KINDS)
def test_drafts_that_are_never_accepted_are_never_faster_than_none(name: str, method: Method, layout: Layout) -> None:
    case = case_of(name, drafting(method, 2, 0.0), layout, load=CHAT)
    plain = without_drafts(case)
    assert case.order.tokens_per_step == 1
    assert all(case.token_s(running) >= plain.token_s(running) for running in (1, 16, 128))
    assert Proof(case).saturation_requests_per_s <= Proof(plain).saturation_requests_per_s
    assert case.slots <= plain.slots
    assert case.room < plain.room
    assert case.longest <= plain.longest


def test_a_verify_step_by_hand() -> None:
    """Qwen3-8B on one H200, 20 requests of 3,000 tokens, 3 drafted tokens: 80 tokens, each weight and cache read once.

    36 layers of 32 heads, 8 key-value heads of 128 elements, 4,096 x 12,288 x 3; 151,936 tokens of vocabulary; 16 bits.
    """
    gpu, fit = GPUS["h200-sxm"], CALIBRATION
    layer = 4096 * 128 * (32 + 8 + 8 + 32) + 3 * 4096 * 12_288
    head, tokens = 151_936 * 4096, 20 * 4
    flops, bandwidth = gpu.flops["bf16"] * fit.compute["none"], gpu.memory_bytes_per_s * fit.bandwidth["none"]
    seconds = fit.step_s + 72 * fit.layer_s
    # One more request costs so much for each token that is sampled.
    seconds += tokens * fit.request_s
    seconds += tokens * 72 * fit.token_vectors * 2 * 4096 / gpu.memory_bytes_per_s
    seconds += (36 * layer + head) * (2 * tokens / flops + 2 / bandwidth)
    seconds += 20 * 3000 * 36 * 2 * 8 * 128 * 2 / (gpu.memory_bytes_per_s * fit.cache_bandwidth)
    model = catalogue.load("qwen3-8b")
    roofline = SpeculativeRoofline(model, gpu, ONE, "bf16", drafting("ngram", 3))
    assert roofline.step_s(decodes=20, context=3000) == pytest.approx(seconds * fit.engine, rel=1e-6)


def test_scores_of_many_tokens_take_longer_than_reading_their_cache() -> None:
    """48 heads on 1 key-value head: 17 queries of 96 operations for each byte of 16 bits are beyond what is read."""
    mixer = FullAttention(kind="full", count=40, heads=48, kv_heads=1, head_size=128)
    model = catalogue.load("qwen3-8b").model_copy(update={"mixers": {"full": mixer}})
    gpu, fit = GPUS["h200-sxm"], CALIBRATION
    roofline = SpeculativeRoofline(model, gpu, ONE, "bf16", drafting("ngram", 16))
    near, far = (roofline.step_s(decodes=8, context=context) for context in (10_000, 30_000))
    scores = 8 * 17 * 20_000 * 40 * 4 * 48 * 128
    assert far - near == pytest.approx(scores / (gpu.flops["bf16"] * fit.attention_compute) * fit.engine, rel=1e-6)


def test_latent_scores_are_computed_for_each_token() -> None:
    model, gpu, fit = catalogue.load("deepseek-v3"), GPUS["h200-sxm"], CALIBRATION
    plain = Roofline(model, gpu, EIGHT, "fp8")
    near, far = (plain.wide_step_s(decodes=32, context=context, width=4) for context in (10_000, 30_000))
    scores = 32 * 4 * 20_000 * 61 * 2 * 16 * (2 * 512 + 64)
    assert far - near == pytest.approx(scores / (gpu.flops["bf16"] * fit.latent_compute) * fit.engine, rel=1e-6)


def test_an_indexer_scores_each_further_token() -> None:
    model, gpu, fit = catalogue.load("deepseek-v3.2"), GPUS["h200-sxm"], CALIBRATION
    plain = Roofline(model, gpu, EIGHT, "fp8")
    near, far = (plain.wide_step_s(decodes=32, context=context, width=5) for context in (50_000, 90_000))
    scores = 32 * 4 * 40_000 * 61 * 2 * 64 * 128
    # Beyond the tokens that it chooses, nothing else grows with the context but what it reads.
    assert far - near == pytest.approx(scores / (gpu.flops["bf16"] * fit.attention_compute) * fit.engine, rel=1e-6)


def test_states_are_written_for_each_token() -> None:
    """Of 36 linear layers a request's state of 2 bytes x 32 x 128 x 128 is read once, and written for each token."""
    model, gpu, fit = catalogue.load("qwen3-next-80b-a3b"), GPUS["h200-sxm"], CALIBRATION
    roofline = Roofline(model, gpu, ONE, "fp8")

    def states(width: float) -> float:
        few, many = (roofline.wide_step_s(decodes=size, context=0, width=width / size) for size in (4096, 8192))
        # As many tokens in both, so that requests alone differ.
        return (many - few) / 4096 / fit.engine - fit.request_s - head

    # What one more sampled token adds by itself.
    head = 2 * 151_936 * 2048 / (gpu.flops["bf16"] * fit.compute["none"])
    state = 36 * 2 * 32 * 128 * 128 / (gpu.memory_bytes_per_s * fit.cache_bandwidth)
    assert states(8192) == pytest.approx(state, rel=1e-3)
    wide, narrow = (roofline.wide_step_s(decodes=64, context=0, width=width) for width in (3, 2))
    linear, less = (roofline.wide_step_s(prefill=64 * width, decodes=1e-9, context=0) for width in (3, 2))
    prefill_work = 64 * 36 * 6 * 32 * 128 * 128 / (gpu.flops["bf16"] * fit.attention_compute) * fit.engine
    assert wide - narrow - (linear - less) + prefill_work == pytest.approx(64 * state * fit.engine, rel=1e-3)


DRAFTING_MODELS: list[Method] = ["draft", "mtp"]


@pytest.mark.parametrize("method", DRAFTING_MODELS)
def test_drafting_is_a_first_pass_with_all_tokens_and_others_with_one(method: Method) -> None:
    name, layout = ("qwen3-32b-fp8", Layout(tensor=2)) if method == "draft" else ("deepseek-v3", EIGHT)
    model, gpu, speculation = catalogue.load(name), GPUS["h200-sxm"], drafting(method, 3)
    drafts = drafter(model, speculation)
    assert drafts is not None
    own = Roofline(drafts, gpu, layout, "fp8")
    asked: dict[str, Any] = {"prefill": 500.0, "reach": 900.0, "decodes": 12.0, "context": 2000.0}
    verify = Roofline(model, gpu, layout, "fp8").wide_step_s(**asked, width=4, sampled=4)
    passes = own.wide_step_s(**asked, width=4) + 2 * own.step_s(decodes=12, context=2000)
    if method == "mtp":
        fit, joining = CALIBRATION, 2 * 7168**2
        tokens = 500 + 12 * 4 + 2 * 12
        worked = 2 * joining * tokens / (gpu.flops["bf16"] * fit.compute["none"])
        passes += (worked + 3 * 2 * joining / (gpu.memory_bytes_per_s * fit.bandwidth["none"])) * fit.engine
    step = SpeculativeRoofline(model, gpu, layout, "fp8", speculation).step_s(**asked)
    assert step == pytest.approx(verify + passes, rel=1e-9)


def test_no_requests_and_no_prompts_take_no_time() -> None:
    for name, method, layout in KINDS:
        assert case_of(name, drafting(method), layout).roofline.step_s() == 0


def test_a_large_batch_loses_by_drafts_that_few_requests_win_by() -> None:
    """Short requests leave room for many, whose steps compute: what is not accepted is computed for nothing."""
    case = case_of("qwen3-8b", drafting("ngram", 4, 0.4), load=SHORT)
    changed = gains(case)
    assert changed["gain_alone"].value > 1.4
    assert changed["gain_full"].value < 0.95
    assert changed["gain_saturation"].value < 1
    assert "a loss" in block(Proof(case))


def test_the_page_shows_where_drafts_are_a_loss() -> None:
    rows = re.findall(r"^\| (\d+) % \| x ([\d.]+) \| x ([\d.]+) \| x ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 3
    for accepted, *shown in rows:
        changed = gains(case_of("qwen3-8b", drafting("ngram", 4, int(accepted) / 100), load=SHORT))
        figures = [changed[key].value for key in ("gain_alone", "gain_full", "gain_saturation")]
        assert [float(figure) for figure in shown] == pytest.approx(figures, abs=0.006)


def test_gains_of_a_case_are_those_of_both_cases() -> None:
    case = case_of("deepseek-v3", drafting("mtp", 1, 0.85), EIGHT, load=CHAT)
    plain, figures = without_drafts(case), Proof(case).figures()
    assert plain.order.speculation is None
    assert (plain.layout, plain.replicas) == (case.layout, case.replicas)
    assert figures["gain_alone"].value == pytest.approx(plain.decode_s(1) / case.decode_s(1) * 1.85)
    assert figures["tokens_per_step"].value == pytest.approx(1.85)
    assert figures["plain_tpot_mean"].value == pytest.approx(plain.steady.mean_s("tpot") * 1e3)
    full = case.slots / case.decode_s(case.slots) * 1.85 / 8
    assert figures["full_tokens_per_s_per_gpu"].value == pytest.approx(full)
    assert figures["decode_alone"].value == pytest.approx(case.decode_s(1) / 1.85 * 1e3)
    most = Proof(plain).saturation_requests_per_s
    assert figures["gain_saturation"].value == pytest.approx(figures["saturation"].value / most)
    assert Proof(plain).speculation == {}


def test_no_figure_with_drafts_is_called_calibrated() -> None:
    proof = Proof(case_of("deepseek-v3", drafting("mtp", 1, 0.85), EIGHT, load=CHAT))
    assert {figure.fidelity for figure in proof.speed.values()} == {"estimated"}
    assert "calibrated" in {figure.fidelity for figure in Proof(without_drafts(proof.case)).speed.values()}


def test_prompts_get_what_verified_tokens_leave_of_a_step() -> None:
    case = case_of("qwen3-8b", drafting("ngram", 7, 0.5), load=replace(CHAT, requests_per_s=4.0))
    steady = case.steady
    decodes = steady.balance.decodes
    assert steady._room(decodes) == pytest.approx(case.batched_tokens - 8 * decodes)
    plain = replace(steady, engine=replace(steady.engine, width=1))
    assert plain.full_token_s < steady.full_token_s


def test_running_requests_and_their_contexts_follow_the_tokens_of_a_step() -> None:
    """Little: arrivals x steps of an answer x their time. A request of 400 tokens at 2 per step takes 200 steps."""
    load = fixed(1000, 401, rate=2.0)
    steady = case_of("qwen3-8b", drafting("ngram", 1, 0.999), load=load).steady
    per_step = expected_tokens(0.999, 1)
    assert steady.gaps == pytest.approx(400 / per_step, rel=0.01)
    assert steady.running == pytest.approx(2.0 * 400 / per_step * steady.itl_mean_s, rel=0.02)
    assert steady.times.context == pytest.approx(1000 + 200, rel=0.01)


def test_tpot_is_a_step_by_its_tokens_and_itl_the_step() -> None:
    case = case_of("deepseek-v3", drafting("mtp", 1, 0.85), EIGHT, load=CHAT)
    steady = case.steady
    assert steady.mean_s("itl") == pytest.approx(steady.itl_mean_s)
    assert steady.mean_s("tpot") == pytest.approx(steady.itl_mean_s / 1.85, rel=0.1)
    for share in (0.5, 0.95, 0.99):
        quantile = steady.quantile_s("tpot", share)
        assert steady.beyond("tpot", quantile) <= 1 - share + 1e-6 < steady.beyond("tpot", quantile * 0.99) + 0.02
        assert quantile < steady.quantile_s("itl", share)


def test_targets_of_tpot_allow_longer_steps_and_those_of_itl_do_not() -> None:
    assert Slo.of(tpot_p95_ms=20, itl_p95_ms=100).mean_step_ms(2.0) == 40
    assert Slo.of(tpot_p95_ms=60, itl_p95_ms=100).mean_step_ms(2.0) == 100
    speculation = drafting("ngram", 3, 0.6)
    tpot, itl = (
        case_of("qwen3-8b", speculation, load=CHAT, slo=slo) for slo in (Slo.of(tpot_p50_ms=10), Slo.of(itl_p50_ms=10))
    )
    limit = 0.010 * speculation.per_step
    assert tpot.decode_s(tpot.slots) <= limit < tpot.decode_s(tpot.slots + 1)
    assert itl.decode_s(itl.slots) <= 0.010 < itl.decode_s(itl.slots + 1)
    # Means are held against them likewise.
    assert tpot.steady.keeps(Slo.of(tpot_p50_ms=tpot.steady.mean_s("tpot") * 1.3e3).targets[0])
    assert not tpot.steady.keeps(Slo.of(tpot_p99_ms=tpot.steady.mean_s("tpot") * 0.8e3).targets[0])


def test_a_full_replica_gives_tokens_as_its_steps_do() -> None:
    """All answers, no prompts: slots x tokens of a step / step."""
    roofline = SpeculativeRoofline(catalogue.load("qwen3-8b"), GPUS["h200-sxm"], ONE, "fp8", drafting("ngram", 3, 0.6))
    mix, per_step = Mix(prompt=1, answer=4000), drafting("ngram", 3, 0.6).per_step
    full = saturation(roofline, mix, slots=100, batched_tokens=8192, tokens_per_step=per_step, width=4)
    assert full.answer_tokens_per_s == pytest.approx(100 * per_step / full.step_s, rel=0.01)
    # Of 512 tokens, 4 for each answering request, prompts get the rest; no step has more.
    long = Mix(prompt=4000, answer=500)
    tight, loose = (saturation(roofline, long, slots=100, batched_tokens=512, width=width) for width in (4, 1))
    assert tight.prompt_tokens + 4 * tight.answering <= 512 < tight.prompt_tokens + 8 * tight.answering
    assert tight.requests_per_s < loose.requests_per_s
    # Little's law: 40 slots are held for the steps of an answer, and those of a prompt in what answers leave.
    few = saturation(roofline, long, slots=40, batched_tokens=512, width=4)
    stay = 499 + 4000 / (512 - 4 * few.answering)
    assert few.requests_per_s * few.step_s * stay == pytest.approx(40, rel=1e-3)


def test_a_token_costs_its_share_of_a_step_by_the_tokens_of_the_step() -> None:
    case = case_of("qwen3-8b", drafting("ngram", 3, 0.6), load=CHAT, prices=Prices(gpu_hour=1.0))
    steady = case.steady
    share = steady.decode_s(steady.running) / steady.running
    assert work(case).answer_s == pytest.approx(share / case.order.tokens_per_step)


@pytest.mark.parametrize(("tokens", "acceptance"), [(1, 0.3), (3, 0.6), (4, 0.9), (8, 0.99)])
def test_steps_of_an_answer_are_drawn_with_the_mean_and_the_spread_of_their_tokens(
    tokens: int, acceptance: float
) -> None:
    """Renewal theory: n tokens take n / m steps, with the variance n s^2 / m^3; both for long and short answers."""
    speculation = Speculation(method="ngram", tokens=tokens, acceptance=acceptance)
    mean, variance = speculation.per_step, speculation.variance
    for answer in (60, 2000):
        random = Random(1)  # noqa: S311
        drawn = [speculation.steps_of(answer, random) for _ in range(4000)]
        # A part of the last step is too much on average.
        beyond = (variance + mean**2 + mean) / (2 * mean**2)
        assert fmean(drawn) == pytest.approx(answer / mean + beyond - 1 / mean, rel=0.01)
        assert stdev(drawn) == pytest.approx(math.sqrt(answer * variance / mean**3 + 0.1), rel=0.1)


def test_the_steps_of_a_few_tokens_are_as_likely_as_their_drafts() -> None:
    """Two tokens come in one step if the first draft is accepted; three, if both are."""
    speculation = Speculation(method="ngram", tokens=2, acceptance=0.7)
    random = Random(1)  # noqa: S311
    for answer, chance in ((1, 1.0), (2, 0.7), (3, 0.49)):
        once = [speculation.steps_of(answer, random) == 1 for _ in range(20_000)]
        assert fmean(once) == pytest.approx(chance, abs=0.012)


@pytest.mark.parametrize("answer", [40, 400])
@pytest.mark.parametrize(("tokens", "acceptance"), [(1, 0.85), (4, 0.6)])
def test_the_time_of_a_token_differs_between_answers_by_the_drafts_that_are_accepted(
    answer: int, tokens: int, acceptance: float
) -> None:
    """Of equal answers of a request that is alone, whose steps all take as long; 1.1 where an answer has few steps."""
    speculation = drafting(tokens=tokens, acceptance=acceptance)
    load = fixed(500, answer + 1, rate=1e-4)
    steady = case_of("qwen3-32b-fp8", speculation, Layout(tensor=2), load=load).steady
    random = Random(1)  # noqa: S311
    drawn = sorted(speculation.steps_of(answer, random) for _ in range(20_000))
    for share in (0.05, 0.5, 0.95, 0.99):
        expected = drawn[int(share * len(drawn))] * steady.times.decode_s(1) / answer
        assert steady.quantile_s("tpot", share) == pytest.approx(expected, rel=0.05 if answer > 100 else 0.1), share


@pytest.mark.parametrize("answer", [1, 8, 40, 400])
@pytest.mark.parametrize(("tokens", "acceptance"), [(1, 0.85), (4, 0.6), (8, 0.9)])
def test_a_token_takes_the_steps_of_its_answer_and_the_last_one_may_give_more_than_is_left(
    answer: int, tokens: int, acceptance: float
) -> None:
    """Of a request that is alone; one token after the first takes a whole step, however many it could give."""
    speculation = drafting(tokens=tokens, acceptance=acceptance)
    steady = case_of("qwen3-32b-fp8", speculation, Layout(tensor=2), load=fixed(500, answer + 1, rate=1e-4)).steady
    random = Random(1)  # noqa: S311
    steps = fmean(speculation.steps_of(answer, random) for _ in range(20_000))
    # The excess of the last step is that of long answers.
    band = 0.1 if 1 < answer <= tokens else 0.03
    assert steady.mean_s("tpot") == pytest.approx(steps * steady.times.decode_s(1) / answer, rel=band)
    assert steady.quantile_s("tpot", 0.99) > 0.99 * steady.times.decode_s(1) / min(answer, 1 + tokens)


@pytest.mark.parametrize("answer", [0, 1, 7, 500])
def test_drafts_that_are_never_or_always_accepted_leave_nothing_to_chance(answer: int) -> None:
    for acceptance, per_step in ((0.0, 1), (1.0, 5)):
        speculation = Speculation(method="ngram", tokens=4, acceptance=acceptance)
        assert speculation.variance == 0
        assert speculation.steps_of(answer, Random(1)) == math.ceil(answer / per_step)  # noqa: S311
