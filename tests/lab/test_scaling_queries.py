"""When first tokens make one more replica due, by Prometheus's own test tool: the query on made-up series."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.models.scaling import late_replicas
from components.specs.model_server import FirstTokens, ScalingPlan
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
