"""The API server in front of an engine: what it takes, what it passes, and where it is the limit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stacks.plan.block import block
from stacks.proof.case import Case
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.front_end import CHUNK_STREAMS, FRONT_END, MOST_BUSY_SERVER, SERVERS, ServerTime
from stacks.proof.layouts import Layout
from stacks.proof.proof import Proof, prove
from stacks.proof.serving import Steady
from tests.unit.proof.proof_orders import CHAT, ONE, order

pytestmark = pytest.mark.row("opening 1", "001.28")

RECORD = Path(__file__).parents[3] / "benchmarks" / "results" / "front_end.json"
# 600 requests/s that one GPU computes with ease, and one process of Python does not pass.
SHORT = Load(requests_per_s=600.0, prompt_tokens=Spread(128, 256), answer_tokens=Spread(4, 8))
SMALL = order("llama-3.2-1b", load=SHORT)


def test_the_times_are_those_that_were_measured() -> None:
    tables = {table["title"].partition(":")[0]: table["rows"] for table in json.loads(RECORD.read_text())["tables"]}
    measured = {row["one"]: row["us"] for row in tables["Fitted"]}
    assert measured == pytest.approx(
        {
            "request": FRONT_END.request_s * 1e6,
            "prompt token": FRONT_END.prompt_token_s * 1e6,
            "answer token": FRONT_END.token_s * 1e6,
            "piece": FRONT_END.piece_s * 1e6,
            "step": FRONT_END.step_s * 1e6,
        },
        rel=0.005,
    )


def test_what_requests_take() -> None:
    """By hand: 1.93 ms, 128 x 2.69 us, and 128 x (12.4 + 65.1) us; of few streams at least in two pieces."""
    assert FRONT_END.streamed_s(128, 128, 128) == pytest.approx(12.194e-3, rel=1e-3)
    assert FRONT_END.least_s(128, 128, CHUNK_STREAMS) == pytest.approx(3.992e-3, rel=1e-3)
    assert FRONT_END.least_s(128, 128, CHUNK_STREAMS + 1) == FRONT_END.streamed_s(128, 128, 128)
    assert FRONT_END.least_s(128, 1, 1) == pytest.approx(FRONT_END.streamed_s(128, 1, 1))
    assert FRONT_END.outputs_s(100, 50) == pytest.approx(5.125e-3, rel=1e-3)


def test_published_runs_of_small_models_pass_no_more_than_that() -> None:
    """What engines on servers are known to pass; none of it made a constant.

    vllm-project/vllm#12287 (Llama-3.2-1B on A100, 225 / 202 tokens): 63.6 requests/s before it, with one server that
    was the limit. #41181 (Qwen3-4B, 32 / 32): 740 with four servers. One H200, 128 / 128 and 840 streams at once: 87.2
    (benchmarks/gpu). Nemotron 3 Nano, 1,024 / 1,024 and as many streams: 15.46, which no other one reaches; its source
    names no version and no number of servers.
    """
    assert FRONT_END.streamed_s(225, 202, 202) == pytest.approx(1 / 63.6, rel=0.25)
    assert FRONT_END.streamed_s(32, 32, 32) == pytest.approx(4 / 740, rel=0.25)
    assert FRONT_END.least_s(128, 128, 840) == pytest.approx(1 / 87.2, rel=0.1)
    assert FRONT_END.least_s(1024, 1024, 1024) == pytest.approx(1 / 15.46, rel=0.35)


def test_a_wait_is_that_of_one_server() -> None:
    """100 a second of 5 ms each, half of its time: rate x square / 2 / what is free. Then as much again in steps."""
    server = ServerTime(requests_per_s=100.0, request_s=5e-3, steps_per_s=0.0, outputs_s=0.0)
    assert (server.busy, server.wait_s) == pytest.approx((0.5, 2.5e-3))
    both = replace(server, steps_per_s=40.0, outputs_s=5e-3)
    assert (both.busy, both.wait_s) == pytest.approx((0.7, (0.0025 + 0.001) / 2 / 0.3))


def test_a_load_that_only_the_front_end_does_not_carry_is_refused_by_its_name() -> None:
    case = Case(SMALL, ONE, 1)
    assert case.steady.computes
    assert not case.steady.stable
    (problem,) = case.load_problems
    assert problem.kind == "overload"
    assert "their front end, one API server a replica, would need 1" in problem.text
    assert problem.text.endswith(" % of its time, and has 90 %")
    passed = case.steady.passed_requests_per_s
    assert passed == pytest.approx(MOST_BUSY_SERVER / FRONT_END.streamed_s(138, 4.4, 4.4), rel=0.02)
    assert "front end" not in Case(order("llama-3.3-70b-fp8", load=SHORT), ONE, 1).load_problems[0].text


def test_a_refusal_names_no_rate_that_is_above_the_load() -> None:
    """What steps give takes the rest of its time: without them it would pass this load."""
    case = Case(replace(SMALL, load=replace(SHORT, requests_per_s=300.0)), ONE, 1)
    assert case.steady.computes and case.steady.passed_requests_per_s > 300
    (problem,) = case.load_problems
    assert f"would need {100 * case.steady.server.busy:.3g} % of its time" in problem.text
    assert "340" not in problem.text


def test_a_front_end_a_replica_passes_it() -> None:
    proof = prove(SMALL)
    assert proof.holds
    assert proof.case.replicas == 3
    passed = proof.serving["front_end"].value
    # What steps give takes its part.
    assert 0.7 * passed < proof.capacity_requests_per_s <= passed
    assert "; the front end passes " in block(proof)
    assert proof.saturation_requests_per_s == pytest.approx(
        3 * SERVERS / FRONT_END.least_s(138.2, 4.49, proof.case.slots), rel=0.02
    )


def test_a_limit_that_is_far_away_changes_no_more_than_the_first_token() -> None:
    case = prove(order("glm-5.1-fp8", load=CHAT, slo=Slo.of(ttft_p95_ms=6000, itl_p95_ms=75))).case
    steady = case.steady
    bare = Steady(replace(steady.engine, servers=0.0), steady.load, steady.schedulers)
    assert bare.front_end_s == 0
    assert steady.front_end_s > CHAT.prompt_tokens.mean * FRONT_END.prompt_token_s
    for share in (0.5, 0.95, 0.99):
        assert steady.itl_quantile_s(share) == bare.itl_quantile_s(share)
        assert steady.beyond("ttft", steady.ttft_quantile_s(share)) == pytest.approx(1 - share, rel=5e-3)
    assert steady.ttft.total - bare.ttft.total == pytest.approx(steady.front_end_s)
    # Half of the prompts are shorter than the mean, and take less to tokenise; the longest take most.
    usual, longest = (steady.ttft_quantile_s(share) - bare.ttft_quantile_s(share) for share in (0.5, 0.99))
    assert 0 < usual < steady.front_end_s < longest
    assert longest - usual < CHAT.prompt_tokens.strata[-1].tokens * FRONT_END.prompt_token_s
    assert "the front end passes" not in block(Proof(case))


def test_every_token_is_a_piece_and_every_step_counts() -> None:
    steady = Case(replace(SMALL, load=replace(SHORT, requests_per_s=200.0)), ONE, 1).steady
    server, tokens = steady.server, steady.gaps + 1
    outputs = 200 * tokens * (FRONT_END.token_s + FRONT_END.piece_s) + server.steps_per_s * FRONT_END.step_s
    assert server.steps_per_s * server.outputs_s == pytest.approx(outputs)
    assert server.steps_per_s == pytest.approx(steady.balance.per_s)
    # What others take of a busy server is in the percentiles, and in the shares within a target.
    others_s = steady.front_end_s - SHORT.prompt_tokens.mean * FRONT_END.prompt_token_s
    bare = Steady(replace(steady.engine, servers=0.0), steady.load, steady.schedulers)
    first = steady.ttft_quantile_s(0.5)
    assert first - bare.ttft_quantile_s(0.5) > 0.9 * others_s > 0.05 * first
    assert steady.beyond("ttft", first) == pytest.approx(0.5, rel=5e-3)


def test_data_parallel_ranks_share_one() -> None:
    """Four ranks under four times the load: as busy each, and their server four times as much."""
    load = replace(SHORT, requests_per_s=50.0)
    single = Case(order("qwen3-8b", load=load), ONE, 1).steady
    four = Case(order("qwen3-8b", load=replace(load, requests_per_s=200.0)), Layout(data=4), 1).steady
    assert four.balance.decodes == pytest.approx(single.balance.decodes, rel=0.01)
    assert four.server.busy == pytest.approx(4 * single.server.busy, rel=0.01)
    assert four.passed_requests_per_s == pytest.approx(single.passed_requests_per_s)


def test_drafts_come_in_one_piece() -> None:
    """As many tokens in fewer pieces take less, and no less than the tokens do."""
    steady = Case(order("qwen3-8b", load=replace(SHORT, answer_tokens=Spread(400, 800))), ONE, 2).steady
    drafted = Steady(replace(steady.engine, tokens_per_step=2.0), steady.load, steady.schedulers)
    assert 1.4 < drafted.passed_requests_per_s / steady.passed_requests_per_s < 2
