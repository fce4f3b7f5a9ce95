"""When late first tokens make a replica due, and when a first request does, by Prometheus's own test tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.models.scaling import asked, late_replicas, none_ready
from components.specs.model_server import FirstTokens, ScalingPlan, ZeroPlan
from tests.lab.queries_tried import evaluated

pytestmark = pytest.mark.row("001.24", "003.30")

TARGET = FirstTokens(share=0.95, seconds=2)
PLAN = ScalingPlan(least=2, most=9, peaks=(), requests=31, kv_share=0.85, window_s=300, first_token=TARGET)
QUERY = late_replicas("chat", PLAN, TARGET)


def series(in_time: int, late: int, *, pods: int = 2) -> dict[str, str]:
    """Requests a minute with their first token within a second, and within four; two data-parallel ranks each."""
    both = in_time + late
    made = {}
    for pod in range(pods):
        for rank in range(2):
            of = f'job="inference-engines", model="chat", pod="{pod}", engine="{rank}"'
            made[f"vllm:num_requests_running{{{of}}}"] = "3x60"
            name = "vllm:time_to_first_token_seconds"
            for le, count in (("1.0", in_time), ("4.0", both), ("+Inf", both)):
                made[f'{name}_bucket{{{of}, le="{le}"}}'] = f"0+{count}x60"
            made[f"{name}_count{{{of}}}"] = f"0+{both}x60"
    return made


def test_late_first_tokens_make_one_more_due_than_serve(tmp_path: Path) -> None:
    evaluated(tmp_path, series(10, 5), {QUERY: {"{}": 3}})
    # Within a tenth of what there is, the autoscaler would do nothing.
    evaluated(tmp_path, series(10, 5, pods=12), {QUERY: {"{}": 14}})


def test_first_tokens_in_time_and_few_late_ones_ask_for_none(tmp_path: Path) -> None:
    evaluated(tmp_path, series(20, 0), {QUERY: {"{}": 0}})
    evaluated(tmp_path, series(0, 1), {QUERY: {"{}": 0}})
    evaluated(tmp_path, series(0, 0), {QUERY: {"{}": 0}})


def test_replicas_that_have_answered_nothing_yet_are_calm_and_no_replicas_are_no_answer(tmp_path: Path) -> None:
    running = {name: values for name, values in series(20, 0).items() if "running" in name}
    evaluated(tmp_path, running, {QUERY: {"{}": 0}})
    evaluated(tmp_path, {"up": "1x60"}, {QUERY: {}})


ZERO = ZeroPlan(cooldown_s=900, start_s=178, retry_after_s=60)
ASKED, NONE_READY = asked("chat", ZERO), none_ready("chat")
PICKERS = {f'up{{job="inference-pickers", model="chat", pod="{pod}"}}': "1x60" for pod in "ab"}
REFUSED = 'inference_objective_request_error_total{job="inference-pickers", model="chat", pod="a", error_code="S"}'
PASSED = 'inference_objective_request_total{job="inference-pickers", model="chat", pod="b", priority="0"}'
OVERFLOWED = 'gatekeeper_overflow_requests_total{job="gatekeeper", model="chat", to="small", pod="g"}'


@pytest.mark.parametrize("counter", [REFUSED, PASSED, OVERFLOWED], ids=["refused", "passed", "overflowed"])
def test_a_request_to_a_model_without_a_replica_is_seen(counter: str, tmp_path: Path) -> None:
    """The first one too, with which its counter begins; one alone, and one after hours of others."""
    evaluated(tmp_path, {**PICKERS, counter: "_x59 1"}, {ASKED: {"{}": 1}})
    evaluated(tmp_path, {**PICKERS, counter: "7x59 8"}, {ASKED: {"{}": 1}})
    # A picker that began again since, and has refused as many as the one before.
    evaluated(tmp_path, {**PICKERS, counter: "7x50 _x8 1"}, {ASKED: {"{}": 1}})


def test_old_requests_and_those_of_others_are_none(tmp_path: Path) -> None:
    other = {name.replace('"chat"', '"code"'): "0+1x60" for name in (REFUSED, PASSED, OVERFLOWED)}
    evaluated(tmp_path, {**PICKERS, **other, REFUSED: "7x60", OVERFLOWED: "0x60"}, {ASKED: {"{}": 0}})


def test_a_picker_that_is_not_read_is_no_lack_of_requests(tmp_path: Path) -> None:
    away = {name: "0x60" if 'pod="b"' in name else values for name, values in PICKERS.items()}
    evaluated(tmp_path, {**away, REFUSED: "7x60"}, {ASKED: {}})
    evaluated(tmp_path, {"up": "1x60"}, {ASKED: {}, NONE_READY: {}})
    # What another one reports counts.
    evaluated(tmp_path, {**away, REFUSED: "7x59 8"}, {ASKED: {"{}": 1}})


def test_only_a_picker_knows_that_no_replica_is_ready(tmp_path: Path) -> None:
    ready = 'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat", pod="%s"}'
    evaluated(tmp_path, {ready % "a": "0x60", ready % "b": "0x60"}, {NONE_READY: {"{}": 0}})
    evaluated(tmp_path, {ready % "a": "0x60", ready % "b": "1x60"}, {NONE_READY: {}})
