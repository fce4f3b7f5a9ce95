"""The steady state under load, published results, and that everything moves the right way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from stacks.facts import catalogue
from stacks.proof.bands import fidelity_of
from stacks.proof.case import Case
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from stacks.proof.search import best
from tests.unit.proof.proof_orders import CHAT, GENERATING, TARGETS, drafting, fixed, order

pytestmark = pytest.mark.row("001.03", "001.23", "003.15", "003.16")


def tokens_per_s_per_gpu(name: str, layout: Layout, load: Load, itl_ms: float) -> float:
    """The most answer tokens per second and GPU that one replica gives with a mean ITL of at most that."""
    low, high = 0.0, 1000.0
    for _ in range(30):
        rate = (low + high) / 2
        steady = Case(order(name, load=replace(load, requests_per_s=rate)), layout, 1).steady
        low, high = (rate, high) if steady.stable and steady.itl_mean_s * 1e3 <= itl_ms else (low, rate)
    return low * load.answer_tokens.mean / layout.gpus


AGENTS = fixed(8192, 1024, hit=0.75)


def test_spread_attention_beats_tensor_parallelism_for_glm() -> None:
    """8 K prompts, three quarters cached, 50 ms a token on 8 H200: 78 tokens/s/GPU with TP8, 112 with TP2 x DP4."""
    plain = tokens_per_s_per_gpu("glm-5.1-fp8", Layout(tensor=8), AGENTS, 50)
    # The source slices experts. Whole ones are deployed; with few requests all wait for the rank that reads most.
    spread = tokens_per_s_per_gpu("glm-5.1-fp8", Layout(tensor=2, data=4), AGENTS, 50)
    whole = tokens_per_s_per_gpu("glm-5.1-fp8", Layout(tensor=2, data=4, expert_parallel=True), AGENTS, 50)
    assert spread / plain == pytest.approx(111.7 / 78.3, rel=0.2)
    assert plain == pytest.approx(78.3, rel=0.2)
    assert spread == pytest.approx(111.7, rel=0.25)
    assert max(plain, whole) < spread


@pytest.mark.parametrize(("name", "published"), [("gpt-oss-120b", 3830), ("qwen3-32b-fp8", 548)])
def test_published_throughput_at_thirty_milliseconds(name: str, published: float) -> None:
    """Estimates of AIConfigurator on 8 H200, at 30 ms a token; the best of three layouts is within 1.5."""
    speed = max(tokens_per_s_per_gpu(name, Layout(tensor=tensor), AGENTS, 30) for tensor in (1, 2, 4))
    assert published / 1.5 < speed < published * 1.5


def test_little_s_law_holds() -> None:
    steady = Case(order("qwen3-32b-fp8", load=CHAT), Layout(), 2).steady
    gaps = steady.arrivals_per_s * (CHAT.answer_tokens.mean - 1)
    assert steady.running == pytest.approx(gaps * steady.itl_mean_s, rel=0.02)


@pytest.mark.row("001.21")
def test_prefix_hits_save_prompt_time() -> None:
    """Three quarters cached leave a quarter of the work, and 7/16 of the attention: cached tokens count there."""
    cold = Case(order("qwen3-32b-fp8", load=replace(CHAT, prefix_hit=0.0)), Layout(), 2).steady
    warm = Case(order("qwen3-32b-fp8", load=replace(CHAT, prefix_hit=0.75)), Layout(), 2).steady
    assert 1 / 4 < warm.prompt_share / cold.prompt_share < 7 / 16
    assert warm.ttft.saved == pytest.approx(
        cold.ttft.prefill + cold.ttft.decode - warm.ttft.prefill - warm.ttft.decode, rel=0.15
    )
    assert warm.ttft_quantile_s(0.95) < cold.ttft_quantile_s(0.95) / 2


@pytest.mark.row("001.28", "000.17")
def test_a_prompt_waits_for_one_step_more_where_steps_are_scheduled_ahead() -> None:
    """Whether it does follows from the task and from what drafts (vLLM 0.32 config/vllm.py)."""
    steady = Case(order("qwen3-32b-fp8", load=CHAT), Layout(), 1).steady
    plain = replace(steady, engine=replace(steady.engine, asynchronous=False))
    more_s = steady.ttft.total - plain.ttft.total
    assert plain._base_s < more_s < steady.balance.step_s
    assert steady.ttft.queue - plain.ttft.queue == pytest.approx(more_s)
    assert steady.ttft_quantile_s(0.5) > plain.ttft_quantile_s(0.5) + plain._base_s
    for metric in ("itl", "tpot"):
        assert steady.quantile_s(metric, 0.95) == plain.quantile_s(metric, 0.95)
    drafted = {method: order("deepseek-v3", load=CHAT, speculation=drafting(method, 1)) for method in ("mtp", "ngram")}
    ahead = {method: Case(asked, Layout(tensor=8), 1).steady.engine.asynchronous for method, asked in drafted.items()}
    assert ahead == {"mtp": True, "ngram": False}
    assert not Case(order("bge-m3", load=CHAT), Layout(), 1).steady.engine.asynchronous


def test_small_chunks_keep_streams_smooth_and_prompts_waiting() -> None:
    """The chunk trades ITL for TTFT."""
    busy = replace(CHAT, requests_per_s=3.0)
    small, large = (
        Case(order("qwen3-32b-fp8", load=busy, max_num_batched_tokens=size), Layout(), 2).steady for size in (512, 8192)
    )
    assert small.itl_quantile_s(0.99) < large.itl_quantile_s(0.99)
    assert small.ttft_quantile_s(0.95) >= large.ttft_quantile_s(0.95)


def test_tasks_without_answers_have_no_token_times() -> None:
    load = Load(requests_per_s=20, prompt_tokens=Spread(300, 900), answer_tokens=Spread(1, 1))
    for name in ("bge-reranker-v2-m3", "qwen3-embedding-8b"):
        proof = prove(order(name, "l4", load=load, slo=Slo.of(ttft_p95_ms=1000)))
        assert proof.holds
        assert "itl_p95" not in proof.serving
        assert 0 < proof.serving["ttft_p50"].value < 1000


@pytest.mark.parametrize("name", GENERATING)
def test_directions(name: str) -> None:
    """More load never needs fewer replicas, tighter targets never fewer GPUs, long requests never run more at once."""
    base = order(name, load=CHAT, slo=TARGETS, simple=True)
    layout = best(base).layout
    replicas = [
        best(replace(base, load=replace(CHAT, requests_per_s=rate), slo=Slo(), layout=layout)).replicas
        for rate in (0.5, 2.0, 8.0, 32.0)
    ]
    assert replicas == sorted(replicas)
    loose, tight = (best(replace(base, slo=Slo.of(ttft_p95_ms=ttft))) for ttft in (20_000, 6000))
    assert loose.gpus <= tight.gpus or tight.problems
    held = [
        Case(replace(base, load=None, typical_request_tokens=size), layout, 1).held for size in (2000, 8000, 32_000)
    ]
    assert held == sorted(held, reverse=True)


@pytest.mark.parametrize("name", ["glm-5.1-fp8", "qwen3-32b-fp8", "gpt-oss-120b", "qwen3.5-122b-a10b"])
def test_more_replicas_never_carry_less(name: str) -> None:
    layout = best(order(name)).layout
    rates = [
        prove(order(name, layout=layout, replicas=count, load=CHAT, slo=TARGETS)).capacity_requests_per_s
        for count in (4, 8, 16)
    ]
    assert rates == sorted(rates)
    assert rates[0] > 0


@pytest.mark.parametrize("name", GENERATING)
def test_what_the_proof_carries_is_stable_and_within_what_it_holds(name: str) -> None:
    proof = prove(order(name, load=CHAT, slo=TARGETS))
    assert proof.holds
    steady = proof.case.steady
    assert steady.running < proof.case.slots <= proof.case.held or proof.case.slots == 1024
    assert steady.itl_quantile_s(0.5) <= steady.itl_quantile_s(0.95) <= steady.itl_quantile_s(0.99)
    assert steady.ttft_quantile_s(0.5) < steady.ttft_quantile_s(0.95) < steady.ttft_quantile_s(0.99)
    assert proof.capacity_requests_per_s >= 0.99 * CHAT.requests_per_s


@pytest.mark.parametrize(("name", "gpus"), [("glm-5.1-fp8", 8), ("qwen3-32b-fp8", 1), ("gpt-oss-120b", 1)])
def test_without_a_load_the_fewest_gpus_that_fit_are_taken(name: str, gpus: int) -> None:
    assert best(order(name)).layout == Layout(tensor=gpus)


def test_every_figure_says_unit_source_and_fidelity() -> None:
    for gpu in ("h200-sxm", "b200"):
        figures = prove(order("qwen3-32b-fp8", gpu, load=CHAT)).figures()
        assert len(figures) > 25
        assert all(figure.source and figure.fidelity for figure in figures.values())
        assert figures["decode_alone"].fidelity == fidelity_of(order("qwen3-32b-fp8", gpu))


def test_a_case_without_load_has_no_steady_state() -> None:
    with pytest.raises(ValueError, match="no load"):
        _ = Case(order("qwen3-8b"), Layout(), 1).steady
    assert catalogue.load("qwen3-8b").task == "generate"


@pytest.mark.parametrize("running", [1, 2, 3, 17, 149])
def test_slots_are_the_most_that_a_step_serves_within_the_target(running: int) -> None:
    free = best(order("qwen3-32b-fp8", gpus=1, load=CHAT))
    assert free.slots > running
    between = (free.decode_s(running) + free.decode_s(running + 1)) / 2 * 1e3
    assert best(order("qwen3-32b-fp8", gpus=1, load=CHAT, slo=Slo.of(itl_p95_ms=between))).slots == running


@pytest.mark.parametrize(
    ("name", "gpu", "layout", "load"),
    [
        ("llama-3.3-70b-fp8", "l40s", Layout(tensor=2), fixed(500, 2)),
        ("llama-3.3-70b", "h200-sxm", Layout(tensor=4), fixed(8000, 4)),
        ("minimax-m2.7", "a100-80gb", Layout(tensor=4, data=2, expert_parallel=True), fixed(2000, 4, hit=0.5)),
    ],
)
def test_short_answers_after_long_prompts_wait_the_less_the_fewer_there_are(
    name: str, gpu: str, layout: Layout, load: Load
) -> None:
    """From one request an hour to the first load that is refused, and none is carried beyond that."""
    rates = [3600**-1 * 1.5**power for power in range(40)]
    states = [
        Case(order(name, gpu, kv_dtype="bf16", load=replace(load, requests_per_s=rate)), layout, 1).steady
        for rate in rates
    ]
    carried = [state.stable for state in states]
    assert carried == sorted(carried, reverse=True)
    gaps = [state.itl_mean_s for state in states if state.stable]
    assert len(gaps) > 15
    assert all(more >= 0.999 * less for less, more in pairwise(gaps))
    # Alone, a token takes a decode step.
    assert gaps[0] == pytest.approx(states[0].decode_s(1), rel=0.1)


@pytest.mark.parametrize("tokens", [8192, 30_000])
def test_prompts_that_all_end_with_a_full_step(tokens: float) -> None:
    """Of an encoder, which cuts what is longer than its context."""
    steady = Case(order("bge-m3", load=fixed(tokens, 1)), Layout(), 1).steady
    assert steady.stable
    assert 0 < steady.quantile_s("ttft", 0.5) < steady.quantile_s("ttft", 0.99) < 1


def test_a_target_that_no_replica_keeps_is_named_and_not_the_load() -> None:
    """One replica of these is also too few for the load; more of them would not help."""
    asked = {"kv_dtype": "bf16", "load": CHAT, "slo": Slo.of(itl_p50_ms=5), "layout": Layout()}
    case = best(order("qwen3-32b-fp8", "a100-80gb", **asked))
    assert [problem.kind for problem in case.problems] == ["itl"]
    assert Case(case.order, Layout(), 1).problems[0].kind == "overload"


@pytest.mark.parametrize(
    ("name", "prompt", "answer", "rate"),
    [("qwen3-32b-fp8", 30_000, 3, 0.2), ("llama-3.3-70b", 100_000, 3, 0.05), ("qwen3-8b", 40_000, 2, 0.3)],
)
def test_steps_and_idle_time_of_a_calm_engine_follow_from_each_other(
    name: str, prompt: float, answer: float, rate: float
) -> None:
    """Prompts that take many times a decode step: they take their share of the time that has steps."""
    steady = Case(order(name, load=fixed(prompt, answer, rate=rate)), Layout(tensor=4), 1).steady
    base = steady.times.decode_s(1)
    step_s, idle = steady._step_and_idle(base)
    assert idle == pytest.approx(steady._idle_at(step_s))
    assert step_s == pytest.approx(base / (1 - steady.prompt_share / (1 - idle)), rel=0.02)
    assert step_s > 1.2 * base
