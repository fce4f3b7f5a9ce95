"""Every setting follows from the proof and says how."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from stacks.plan.block import block
from stacks.plan.settings.definition import Override, Serving, Setting
from stacks.plan.settings.registry import derive
from stacks.plan.settings.scaling import needed_replicas
from stacks.plan.settings.start import PROBE_PERIOD_S, START_MARGIN, START_SLACK_S
from stacks.proof.demand import Slo
from stacks.proof.order import Given
from stacks.proof.proof import Proof, prove
from stacks.proof.serving import PATH_S, REQUEST_OVERHEAD_S
from tests.unit.proof.proof_orders import CHAT, GENERATING, TARGETS, order

pytestmark = pytest.mark.row("opening 2", "001.29")

GLM = order("glm-5.1-fp8", gpus=8, replicas=4, simple=True, load=CHAT, slo=TARGETS)


def values(proof: Proof) -> dict[str, object]:
    return {key: setting.value for key, setting in derive(proof).items()}


def number(settings: dict[str, Setting], key: str) -> float:
    value = settings[key].value
    assert isinstance(value, int | float)
    return value


@pytest.mark.parametrize("name", GENERATING)
def test_every_setting_has_formula_and_origin(name: str) -> None:
    derived = derive(prove(order(name, load=CHAT, slo=TARGETS)))
    assert {
        "tensor_parallel_size",
        "kv_cache_dtype",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_queued_reqs",
        "picker_queue_threshold",
        "picker_kv_threshold",
        "gateway_parallel_requests",
        "gateway_max_tokens",
        "gateway_context_tokens",
        "startup_probe_failures",
        "disruption_max_unavailable",
    } <= set(derived)
    assert all(setting.formula and setting.origin == "derived" for setting in derived.values())


@pytest.mark.parametrize("name", GENERATING)
def test_settings_never_promise_more_than_is_proven(name: str) -> None:
    proof = prove(order(name, load=CHAT, slo=TARGETS))
    derived = derive(proof, Serving(least=1))
    case = proof.case
    assert number(derived, "autoscale_requests") <= case.slots * case.layout.data
    # The picker sees one rank of a replica.
    waiting = number(derived, "picker_queue_threshold") * case.layout.data
    running = number(derived, "max_num_seqs") * case.layout.data
    # vLLM's own bound counts both, so a bound on waiting ones alone would keep its batch from filling.
    assert number(derived, "max_num_queued_reqs") == running + waiting
    assert number(derived, "gateway_parallel_requests") == case.replicas * (running + waiting)
    assert number(derived, "max_num_seqs") <= max(1, case.held)
    assert number(derived, "max_model_len") <= min(case.order.model.max_context_tokens, case.longest)
    assert (
        number(derived, "gateway_max_tokens")
        <= number(derived, "gateway_context_tokens")
        == number(derived, "max_model_len")
    )
    assert number(derived, "autoscale_kv_share") < number(derived, "picker_kv_threshold") < 1
    assert number(derived, "start_budget_s") > proof.cold_start["cold_start"].value
    assert number(derived, "startup_probe_failures") == math.ceil(number(derived, "start_budget_s") / 5)
    assert number(derived, "autoscale_window_s") >= proof.cold_start["cold_start"].value
    assert 1 <= number(derived, "disruption_max_unavailable") <= max(1, case.replicas)


@pytest.mark.parametrize("name", GENERATING)
def test_the_last_of_a_full_queue_is_just_within_its_target(name: str) -> None:
    """One request more would be too late, unless the target leaves room for one alone."""
    proof = prove(order(name, load=CHAT, slo=TARGETS))
    derived, case = derive(proof), proof.case
    running = number(derived, "max_num_seqs") * case.layout.data
    waiting = (number(derived, "max_num_queued_reqs") - running) / case.layout.data
    mean_s, long_s = case.steady.busiest_prompts_s()

    def first_token_s(ahead: float) -> float:
        return PATH_S + REQUEST_OVERHEAD_S + ahead * mean_s + long_s

    target_s = (TARGETS.by_key["ttft_p95_ms"] or 0.0) / 1e3
    assert waiting == 1 or first_token_s(waiting) <= target_s
    assert first_token_s(waiting + 1) > target_s


@pytest.mark.parametrize("name", GENERATING)
def test_the_budgets_outlast_the_download_and_the_start(name: str) -> None:
    """The Job has the download, whatever its speed; a start has none, and its probe does not wait for one."""
    asked = order(name, load=CHAT, slo=TARGETS)
    proofs = [prove(replace(asked, download_bytes_per_s=speed)) for speed in (None, 1e10, 1.25e9, 5.8e8, 1.25e8, 1e6)]
    budgets = [number(derive(proof), "download_budget_s") for proof in proofs]
    assert budgets == sorted(budgets)
    # At the fastest, a model of a gigabyte is there in less than the second that budgets are rounded to.
    assert len(set(budgets[1:])) == len(budgets) - 1
    for proof, budget in zip(proofs, budgets, strict=True):
        cold = {key: figure.value for key, figure in proof.cold_start.items()}
        assert budget >= START_MARGIN * (cold["download_weights"] + cold["read_weights"]) + START_SLACK_S
        start = number(derive(proof), "start_budget_s")
        assert start >= START_MARGIN * cold["read_weights"] + START_SLACK_S
        assert start > cold["cold_start"]
        probes = number(derive(proof), "startup_probe_failures")
        assert probes * PROBE_PERIOD_S >= start
    # What a later start takes, and so how fast replicas can be added, is the same.
    assert len({number(derive(proof, Serving(least=1)), "autoscale_window_s") for proof in proofs}) == 1


def test_the_block_says_first_and_later_start() -> None:
    slow, there = (block(prove(replace(GLM, download_bytes_per_s=speed))) for speed in (1.25e9, None))
    lines = [next(line for line in text.splitlines() if "cold start" in line) for text in (slow, there)]
    assert "; the first 3,749 s, of it 605 s downloading" in lines[0], lines[0]
    assert "download" not in lines[1]


def test_a_changed_target_moves_all_that_follow_from_it() -> None:
    """One key of a site changes chunk, batch, queue and picker in one diff."""
    calm, strict = (
        values(prove(replace(GLM, slo=Slo.of(ttft_p95_ms=ttft, itl_p95_ms=itl))))
        for ttft, itl in ((8000, 300), (5000, 45))
    )
    moved = {key for key in calm if calm[key] != strict[key]}
    assert {
        "max_num_seqs",
        "max_num_queued_reqs",
        "picker_queue_threshold",
        "gateway_parallel_requests",
    } <= moved
    assert "max_model_len" not in moved


def test_inputs_are_named_with_the_setting() -> None:
    derived = derive(prove(GLM))
    assert derived["max_num_seqs"].inputs["itl_p95_ms"] == TARGETS.by_key["itl_p95_ms"]
    assert derived["max_num_queued_reqs"].inputs["ttft_p95_ms"] == TARGETS.by_key["ttft_p95_ms"]
    assert derived["max_model_len"].inputs["model_limit"] == 202_752


def test_an_override_says_so_and_keeps_its_reason() -> None:
    reason = "the tenant's batch job wants no more"
    ordered = replace(GLM, max_num_seqs=Given(12, reason), context_tokens=Given(65_536, reason))
    derived = derive(prove(ordered), Serving(overrides={"stall_s": Override(value=600, reason=reason)}))
    assert (derived["stall_s"].value, derived["stall_s"].origin, derived["stall_s"].reason) == (600, "override", reason)
    assert (derived["max_num_seqs"].value, derived["max_num_seqs"].origin) == (12, "override")
    assert derived["max_num_seqs"].reason == reason
    assert (derived["max_model_len"].value, derived["max_model_len"].origin) == (65_536, "override")
    assert derived["max_num_batched_tokens"].origin == "derived"


def test_longer_streams_allow_longer_answers() -> None:
    proof = prove(GLM)
    short, long = (
        number(derive(proof, Serving(longest_stream_s=longest_s)), "gateway_max_tokens") for longest_s in (300, 3000)
    )
    assert long == pytest.approx(10 * short, rel=0.01)


@pytest.mark.row("001.37")
def test_declared_answers_are_never_cut() -> None:
    """The cap is there for runaways, not for what the site expects."""
    proof = prove(GLM)
    assert GLM.load is not None
    expected = GLM.load.answer_tokens.p95
    assert number(derive(proof, Serving(longest_stream_s=1)), "gateway_max_tokens") == expected


def test_neither_replicas_nor_load_move_what_a_running_engine_got() -> None:
    """A replica more must not restart the others, which takes minutes each."""
    base = order("qwen3-32b-fp8", gpus=1, simple=True, load=CHAT, slo=Slo.of(ttft_p95_ms=20_000, itl_p95_ms=100))
    proofs = [prove(replace(base, replicas=replicas)) for replicas in range(4, 14)]
    proofs += [prove(replace(base, replicas=8, load=replace(CHAT, requests_per_s=rate))) for rate in (0.5, 1, 2)]
    assert all(proof.holds for proof in proofs)
    for setting in ("max_num_queued_reqs", "picker_queue_threshold", "gateway_max_tokens", "max_num_seqs"):
        assert len({values(proof)[setting] for proof in proofs}) == 1, setting


def test_spare_replicas_may_go_at_once() -> None:
    fewest = prove(replace(GLM, replicas=None)).case
    needed = fewest.replicas
    proof = prove(replace(GLM, layout=fewest.layout, gpus=None, replicas=needed + 3))
    assert needed_replicas(proof) <= needed
    assert number(derive(proof), "disruption_max_unavailable") >= 3


def test_data_parallel_ranks_count_in_the_picker() -> None:
    spread = prove(replace(GLM, simple=False, layout=None, gpus=8))
    derived = derive(spread)
    ranks = spread.case.layout.data
    assert number(derived, "data_parallel_size") == ranks
    assert number(derived, "max_num_queued_reqs") % ranks == 0
