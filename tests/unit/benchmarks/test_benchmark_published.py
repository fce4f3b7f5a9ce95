"""Published rows: what they must be to be compared at all, the runs that stand for them, and how close the proof is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from benchmarks.fit import FittedRow, Place, fitted_rows, loss, places, value_at, with_value
from benchmarks.packed_run import Stretch, alike, mixed, stretches
from benchmarks.published import SHORTEST_ANSWER, Held, close_share, held_rows, run
from benchmarks.published_rows import PublishedRow, published_rows
from benchmarks.recorded_steps import recorded_steps
from lab.paths import Lab
from stacks.facts.hardware import GPUS
from stacks.proof.layouts import why_illegal
from stacks.proof.roofline import CALIBRATION
from stacks.proof.weights import parameters

pytestmark = pytest.mark.row("opening 1", "001.04")

ROOT = Path(__file__).parents[3]
ROWS = published_rows()


def test_there_are_many_rows_of_several_sources_and_engines() -> None:
    assert len(ROWS) >= 150
    owners = {"/".join(row.series.source.split("/")[2:4]) for row in ROWS if "://" in row.series.source}
    assert len(owners) >= 5
    assert {row.series.engine for row in ROWS} >= {"vLLM", "TensorRT-LLM", "AIConfigurator"}
    assert {row.metric for row in ROWS} == {"requests_per_s", "answer_tokens_per_s_per_gpu", "itl_ms", "ttft_ms"}
    assert {row.series.gpu for row in ROWS} >= {"a100-80gb", "h100-sxm", "h200-sxm", "b200", "gb200"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.series.name} {row.prompt:g}/{row.answer:g} {row.metric}")
def test_a_row_can_be_true(row: PublishedRow) -> None:
    """The layout is legal, a request fits, and nobody published more operations a second than the GPUs have."""
    series = row.series
    assert not why_illegal(series.catalogued, series.layout)
    assert [row.requests, row.concurrency, row.itl_limit_ms].count(None) == 2
    if row.metric in ("requests_per_s", "answer_tokens_per_s_per_gpu"):
        tokens = row.prompt + row.answer
        rate = row.figure if row.metric == "requests_per_s" else row.figure * series.layout.gpus / row.answer
        gpu = GPUS[series.gpu]
        peak = max(gpu.flops.values()) * series.layout.gpus
        assert rate * tokens * 2 * parameters(series.catalogued).active < peak


def test_both_halves_of_the_split_have_every_kind_of_weights_and_engine() -> None:
    for held_out in (False, True):
        part = [row for row in ROWS if row.series.held_out == held_out]
        assert {row.series.format for row in part} >= {"none", "fp8", "fp8-block", "mxfp4", "nvfp4"}
        assert {row.series.engine for row in part} >= {"vLLM", "TensorRT-LLM"}
        assert len(part) > 60


@pytest.mark.slow
def test_the_proof_is_close_to_most_rows() -> None:
    """As docs/proof.md states: all rows, and those that no constant was fitted to."""
    rows = held_rows()
    apart = [held for held in rows if not held.fitted]
    assert 0.9 <= median(held.pace for held in rows) <= 1.1
    assert close_share(rows) >= 0.92
    assert 0.85 <= median(held.pace for held in apart) <= 1.2
    assert close_share(apart) >= 0.9
    # A figure that was copied wrongly by a digit would be farther away than any row is; front ends are far as well.
    assert max(held.off for held in rows if held.row.answer >= SHORTEST_ANSWER) < 5
    assert max(held.off for held in rows) < 8


def test_an_engine_that_keeps_whole_caches_holds_fewer_requests() -> None:
    """Llama 4 looks back 8,192 tokens in three of four layers; beyond that, vLLM's cache does not grow in them."""
    kept = next(row.series for row in ROWS if row.series.whole_caches and row.series.gpu == "h200-sxm")
    freed = replace(kept, whole_caches=False)
    assert kept.slots(33_792) < 0.6 * freed.slots(33_792)
    assert {row.series.model for row in ROWS if row.series.whole_caches} == {"llama-4-maverick"}


def test_the_larger_graphs_of_blackwell_leave_room_for_fewer_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in ROWS if row.series.gpu == "b200" and row.series.model == "llama-3.3-70b")
    tokens, hopper = row.prompt + row.answer, GPUS["b200"].model_copy(update={"family": "hopper"})
    with_larger = row.series.slots(tokens)
    monkeypatch.setattr("benchmarks.published_rows.GPUS", {"b200": hopper})
    assert with_larger < row.series.slots(tokens)


def test_what_came_after_the_fit_is_held_out_whatever_its_name() -> None:
    later = [row.series for row in ROWS if row.series.later]
    assert len(later) > 100
    assert all(series.held_out for series in later)
    assert any(not replace(series, later=False).held_out for series in later)


def test_first_tokens_of_an_unloaded_engine_are_close() -> None:
    """From 128 to 8,192 prompt tokens, so that neither the constant nor the time of a token can be far off.

    vLLM 0.11 had a front end that took 50 ms; its row is in the table and not here.
    """
    late = [row for row in ROWS if row.metric == "ttft_ms" and row.series.version != "0.11.0"]
    assert {row.prompt for row in late} == {128, 500, 2048, 5000, 8192}
    assert [row.prompt for row in late if not 1 / 1.25 < row.pace < 1.25] == []


STEPS, FITTED = recorded_steps(), fitted_rows()


@pytest.mark.parametrize(
    ("name", "fitted"), [("all", None), ("fitted", True), ("held out: nothing was fitted to them", False)]
)
def test_the_page_states_what_the_rows_give(name: str, fitted: bool | None) -> None:
    rows = [held for held in held_rows() if fitted is None or held.fitted == fitted]
    pace, close = median(held.pace for held in rows), 100 * close_share(rows)
    page = (ROOT / "docs" / "proof.md").read_text()
    assert f"| {name} | {len(rows)} | {pace:.2f} | {close:.0f} % |" in page


@cache
def least_loss() -> float:
    return loss(CALIBRATION, STEPS, FITTED, CALIBRATION)


def test_what_is_held_out_is_not_fitted_to() -> None:
    assert {row.row.series.name for row in FITTED}.isdisjoint({row.series.name for row in ROWS if row.series.held_out})


@pytest.mark.parametrize("place", places(CALIBRATION), ids=" ".join)
def test_constants_are_where_the_fit_ends(place: Place) -> None:
    """None can be moved by a fifth, either way, so that all timings together fit better by one in a hundred."""
    least = least_loss()
    for factor in (0.8, 1.25):
        moved = with_value(CALIBRATION, place, value_at(CALIBRATION, place) * factor)
        assert loss(moved, STEPS, FITTED, CALIBRATION) > 0.99 * least


@pytest.mark.parametrize("name", ["engine", "request_s", "token_vectors", "expert_vectors", "expert_imbalance"])
def test_what_a_running_engine_adds_is_held_by_published_rows(name: str) -> None:
    wrong = with_value(CALIBRATION, (name, ""), getattr(CALIBRATION, name) * (1.4 if name == "engine" else 4))
    assert loss(wrong, STEPS, FITTED, wrong) > 1.01 * least_loss()


def test_an_engine_is_slower_than_its_kernels() -> None:
    kernels = replace(CALIBRATION, engine=1.0)
    assert loss(kernels, STEPS, FITTED, kernels) > 1.01 * least_loss()


@pytest.mark.parametrize("row", FITTED[::9], ids=lambda row: row.row.series.name)
def test_joined_steps_take_as_long_as_single_ones(row: FittedRow) -> None:
    """The fit asks joined steps, the table single ones."""
    assert row.pace(CALIBRATION, row.row.series.roofline()) == pytest.approx(row.row.pace, rel=0.03)


def test_the_result_shows_every_row_and_the_worst_one() -> None:
    result = run(Lab.from_environment())
    assert len(result.tables[0].rows) == len(ROWS)
    worst = max((Held(row) for row in ROWS), key=lambda held: held.off)
    assert worst.row.series.name in result.findings[-1]
    assert {"engine", "source", "use", "pace"} <= result.tables[0].rows[0].keys()


@pytest.mark.parametrize(("prompt", "answer", "slots", "budget"), [(100, 5, 7, 64), (3, 9, 4, 16), (50, 1, 3, 40)])
def test_a_run_gives_every_token_once(prompt: int, answer: int, slots: int, budget: int) -> None:
    steps = list(stretches(alike(prompt, answer, 30), slots=slots, batched_tokens=budget))
    assert sum(step.steps * step.prefill for step in steps) == 30 * prompt
    assert sum(step.steps * step.decodes for step in steps) == 30 * (answer - 1)
    assert max(step.decodes for step in steps) <= slots
    assert max(step.prefill + step.decodes for step in steps) <= budget
    # Each prompt token attends to half of its prompt on average.
    reached = sum(step.steps * step.prefill * step.reach for step in steps)
    assert reached == pytest.approx(30 * prompt * prompt / 2)


def test_a_lone_request_is_its_prompt_and_then_single_tokens() -> None:
    steps = list(stretches(alike(100, 11, 1), slots=8, batched_tokens=64))
    assert steps == [
        Stretch(steps=1, prefill=64, reach=32.0, decodes=0, context=0.0),
        Stretch(steps=1, prefill=36, reach=82.0, decodes=0, context=0.0),
        Stretch(steps=10, prefill=0, reach=0.0, decodes=1, context=105.5),
    ]


def test_lengths_of_which_the_mean_is_known_have_that_mean_and_a_tail() -> None:
    lengths = mixed(200, 400, 1000)
    assert sum(prompt for prompt, _ in lengths) / 1000 == pytest.approx(200, rel=0.03)
    assert sum(answer for _, answer in lengths) / 1000 == pytest.approx(400, rel=0.03)
    assert max(answer for _, answer in lengths) > 5 * 400
    assert mixed(200, 400, 1000) == lengths
