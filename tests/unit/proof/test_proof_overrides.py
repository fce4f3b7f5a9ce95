"""What a site overrides must still be consistent with its proof."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from stacks.plan.settings.definition import Override, Serving
from stacks.plan.settings.gateway import token_s
from stacks.plan.settings.registry import broken_overrides, derive
from stacks.plan.settings.scaling import needed_replicas
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.fixes import nearest
from stacks.proof.layouts import Layout
from stacks.proof.order import Given
from stacks.proof.proof import prove
from stacks.proof.replica import OneReplica
from tests.unit.proof.proof_orders import CHAT, TARGETS, order

pytestmark = pytest.mark.row("opening 2", "001.37")

REASON = "somebody measured it"
PROOF = prove(order("qwen3-32b-fp8", gpus=1, replicas=4, simple=True, load=CHAT, slo=TARGETS))
CASE = PROOF.case
DERIVED = {key: setting.number for key, setting in derive(PROOF).items() if not isinstance(setting.value, str)}
RUNNING = CASE.slots * CASE.layout.data


def serving(**values: float) -> Serving:
    return Serving(overrides={key: Override(value=value, reason=REASON) for key, value in values.items()})


def test_the_example_holds() -> None:
    assert PROOF.holds
    assert needed_replicas(PROOF) < CASE.replicas


@pytest.mark.parametrize(
    ("key", "value", "what", "fix"),
    [
        ("max_num_queued_reqs", RUNNING, "while the replica could still start one", "lower overrides.max_num_seqs"),
        ("max_num_queued_reqs", DERIVED["max_num_queued_reqs"] + 1, "longer than the TTFT target", "raise slo.ttft"),
        ("picker_queue_threshold", DERIVED["picker_queue_threshold"] + 1, "a replica that refuses", "write at most"),
        ("picker_kv_threshold", 0.99, "throw others out of its cache", "write at most 0.9"),
        ("gateway_parallel_requests", 4 * RUNNING - 1, "while GPUs are idle", "write at least"),
        ("gateway_parallel_requests", DERIVED["gateway_parallel_requests"] + 1, "replicas refuse", "server.replicas"),
        ("gateway_max_tokens", CASE.context + 1, "no request may have more than", "write at most"),
        ("gateway_max_tokens", 1, "answers that the declared load has would be cut", "lower load.answer_tokens.p95"),
        ("stall_s", 1, "in the middle of the slowest step", "lower overrides.max_num_batched_tokens"),
        ("stall_s", 10**6, "longer than a day", "write at most"),
        ("start_budget_s", 60, "4 replicas at once need 258 s to start, so that", "write at least"),
        ("start_budget_s", 10**9 + 1, "Kubernetes takes no such time", "write at most"),
        ("disruption_max_unavailable", 4, "fewer replicas than the", "raise server.replicas"),
    ],
)
def test_what_breaks_the_proof_is_refused_with_what_is_allowed(key: str, value: float, what: str, fix: str) -> None:
    (broken,) = broken_overrides(PROOF, serving(**{key: value}))
    assert broken.path[-1] == key
    assert what in broken.what
    assert fix in broken.fix
    assert broken.got
    assert broken.allowed.startswith(("from", "at"))


def test_a_context_below_the_declared_load_is_refused_and_one_above_it_says_why_it_is_so() -> None:
    short, long = (prove(replace(PROOF.order, context_tokens=Given(tokens, REASON))) for tokens in (1, 32_768))
    (broken,) = broken_overrides(short, Serving())
    assert (broken.path[-1], broken.got) == ("max_model_len", "1 tokens")
    assert "would refuse the declared load" in broken.what
    assert "lower load.prompt_tokens.p95" in broken.fix
    assert not [*broken_overrides(long, Serving())]
    setting = derive(long)["max_model_len"]
    assert (setting.value, setting.origin, setting.reason) == (32_768, "override", REASON)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_num_queued_reqs", RUNNING + 1),
        ("picker_queue_threshold", 1),
        ("picker_kv_threshold", 0.5),
        ("gateway_parallel_requests", 4 * RUNNING),
        ("gateway_max_tokens", math.ceil(CHAT.answer_tokens.p95)),
        ("start_budget_s", 3600),
        ("stall_s", 600),
        ("disruption_max_unavailable", 1),
    ],
)
def test_what_goes_with_the_proof_is_taken_and_says_so(key: str, value: float) -> None:
    serves = serving(**{key: value})
    assert not [*broken_overrides(PROOF, serves)]
    setting = derive(PROOF, serves)[key]
    assert (setting.value, setting.origin, setting.reason) == (value, "override", REASON)


def test_what_follows_from_an_overridden_setting_follows_from_the_sites_value() -> None:
    """A site that lets more wait does not have to say so to picker, gateway and scaling again."""
    free = prove(replace(PROOF.order, slo=TARGETS.but(ttft_p95_ms=None)))
    derived = derive(free, serving(max_num_queued_reqs=1200))
    waiting = 1200 - free.case.slots
    assert derived["picker_queue_threshold"].number == waiting
    assert derived["gateway_parallel_requests"].number == 4 * 1200
    assert derived["gateway_parallel_requests"].origin == "derived"
    start = derive(PROOF, serving(start_budget_s=1001))
    assert start["startup_probe_failures"].number == math.ceil(1001 / 5)
    cache = derive(PROOF, replace(serving(picker_kv_threshold=0.6), least=1))
    assert cache["autoscale_kv_share"].number == pytest.approx(0.54)


def test_an_override_is_judged_beside_the_others() -> None:
    """The gateway may pass on more if the replicas are configured to hold more."""
    free = prove(replace(PROOF.order, slo=TARGETS.but(ttft_p95_ms=None)))
    both = serving(max_num_queued_reqs=1200, gateway_parallel_requests=4800)
    assert not [*broken_overrides(free, both)]
    (broken,) = broken_overrides(free, serving(gateway_parallel_requests=4800))
    assert broken.path[-1] == "gateway_parallel_requests"


def test_without_a_target_any_queue_will_do() -> None:
    calm = prove(order("qwen3-32b-fp8", gpus=1, replicas=2, simple=True))
    assert not [*broken_overrides(calm, serving(max_num_queued_reqs=100_000))]


def test_the_fix_for_longer_answers_works() -> None:
    """The stream that a rollout must wait for grows with the cap."""
    wanted = int(DERIVED["gateway_max_tokens"]) + 1000
    (broken,) = broken_overrides(PROOF, serving(gateway_max_tokens=wanted))
    seconds = math.ceil(wanted * token_s(CASE)) + 1
    assert broken.fix.endswith(f"or raise server.longest_stream_s to {seconds}")
    raised = replace(serving(gateway_max_tokens=wanted), longest_stream_s=seconds)
    assert not [*broken_overrides(PROOF, raised)]


def test_all_of_them_are_reported_at_once() -> None:
    broken = broken_overrides(PROOF, serving(start_budget_s=1, picker_kv_threshold=1.0, gateway_max_tokens=10**6))
    assert sorted(problem.path[-1] for problem in broken) == [
        "gateway_max_tokens",
        "picker_kv_threshold",
        "start_budget_s",
    ]


def test_a_model_that_writes_nothing_has_no_answers_to_cap() -> None:
    reranker = prove(order("bge-reranker-v2-m3", gpus=1, replicas=2, simple=True))
    (broken,) = broken_overrides(reranker, serving(gateway_max_tokens=100))
    assert (broken.allowed, broken.fix) == ("nothing", "take it out")


@pytest.mark.parametrize("batched", [256, 512, None])
@pytest.mark.parametrize("model", ["qwen3-8b", "qwen3-embedding-8b"])
def test_no_engine_is_given_more_requests_than_tokens_of_a_step(model: str, batched: int | None) -> None:
    """vLLM ends with `max_num_batched_tokens must be greater than or equal to max_num_seqs`."""
    for seqs in (None, 100):
        proof = prove(
            order(model, gpus=1, typical_request_tokens=64, max_num_batched_tokens=batched, max_num_seqs=seqs)
        )
        assert proof.case.slots <= proof.case.batched_tokens
        assert proof.holds
    refused = prove(order(model, gpus=1, typical_request_tokens=64, max_num_batched_tokens=256, max_num_seqs=300))
    assert not refused.holds
    assert nearest(refused)[0].text == "lower max_num_seqs to 256, or leave it to the proof"


def test_steps_are_large_enough_for_the_sequences_that_a_site_sets() -> None:
    """Small steps may keep a target of gaps better, and vLLM does not start with them."""
    load = Load(requests_per_s=6, prompt_tokens=Spread(2000, 8000), answer_tokens=Spread(50, 150))
    wanted = order("qwen3-8b", load=load, slo=Slo.of(itl_p99_ms=35))
    assert OneReplica(wanted, Layout()).sizes[-1] == 512
    assert OneReplica(replace(wanted, max_num_seqs=530), Layout()).sizes[-1] == 1024
