"""The bands of speeds, and what counts as calibrated, are what published rows and recorded steps give."""

from __future__ import annotations

import math
import os
from collections import Counter

import pytest
import yaml

from benchmarks.published import SHORTEST_ANSWER, bands, held_rows
from benchmarks.recorded_steps import held_out_steps, recorded_steps
from stacks.facts.hardware import GPUS
from stacks.proof.bands import ALL, FEWEST_ROWS, FILE, band_of, combination, fidelity_of
from stacks.proof.figures import Band
from stacks.proof.proof import prove
from stacks.proof.roofline import KERNELS
from stacks.proof.second_source import BAND
from tests.unit.proof.proof_orders import CHAT, order

pytestmark = pytest.mark.row("opening 1", "001.04")

_HEAD = (
    "# Written by test_proof_bands.py with UPDATE_GOLDEN=1, from benchmarks/published.yaml and the recorded steps.\n"
)


def covered() -> dict[str, list[str]]:
    """Storage, attention and cache of every timing, by GPU: what constants were fitted to, what at least five published
    rows are of, and where all steps that nothing was fitted to agree."""
    known: dict[str, set[str]] = {}
    for step in recorded_steps():
        known.setdefault(step.gpu, set()).add(combination(step.model, step.cache))
    published = Counter(
        (held.row.series.gpu, combination(held.row.series.catalogued, held.row.series.cache)) for held in held_rows()
    )
    for (gpu, kind), rows in published.items():
        if rows >= FEWEST_ROWS:
            known.setdefault(gpu, set()).add(kind)
    apart: dict[tuple[str, str], list[float]] = {}
    for step in held_out_steps():
        distance = abs(math.log(step.derived_s(step.roofline(KERNELS)) / step.seconds))
        apart.setdefault((step.gpu, combination(step.model, step.cache)), []).append(distance)
    for (gpu, kind), distances in apart.items():
        if max(distances) <= math.log(BAND):
            known.setdefault(gpu, set()).add(kind)
    return {gpu: sorted(combinations) for gpu, combinations in sorted(known.items())}


def test_the_table_is_what_the_rows_give() -> None:
    entries = {group: entry.model_dump() for group, entry in bands(held_rows()).items()}
    table = {"bands": entries, "covered": covered()}
    if os.environ.get("UPDATE_GOLDEN"):
        FILE.write_text(_HEAD + yaml.safe_dump(table, sort_keys=True, width=100, default_flow_style=None))
    assert yaml.safe_load(FILE.read_text()) == table


def test_a_band_holds_nine_of_ten_rows_that_nothing_was_fitted_to() -> None:
    """Of each kind of weights, by the band that an order of them gets."""
    table = bands(held_rows())
    apart = [
        held
        for held in held_rows()
        if not held.fitted
        and held.row.series.measured
        and held.row.metric != "ttft_ms"
        and held.row.answer >= SHORTEST_ANSWER
    ]
    within = 0
    for held in apart:
        series = held.row.series
        names = (f"{GPUS[series.gpu].family} {series.format}", series.format, ALL)
        entry = next(table[name] for name in names if name in table)
        within += entry.low <= 1 / held.pace <= entry.high
    assert len(apart) > 50
    assert within / len(apart) >= 0.9


def test_a_band_is_of_the_family_then_of_the_weights_then_of_all() -> None:
    assert band_of(order("gpt-oss-120b", "h100-sxm")) == band_of(order("gpt-oss-20b", "h200-sxm"))
    assert band_of(order("gpt-oss-120b", "h100-sxm")) != band_of(order("gpt-oss-120b", "a100-80gb"))
    # Nothing is published of a Lovelace card, so all kinds of GPU with these weights are taken.
    assert band_of(order("gpt-oss-20b", "l40s")).rows > band_of(order("gpt-oss-20b", "a100-80gb")).rows
    assert band_of(order("kimi-k2.5", "h200-sxm")).rows == bands(held_rows())[ALL].rows


@pytest.mark.parametrize(
    ("name", "gpu", "dtype", "fidelity"),
    [
        ("gpt-oss-120b", "h200-sxm", "bf16", "calibrated"),
        ("gpt-oss-120b", "h200-sxm", "fp8", "calibrated"),
        ("gpt-oss-120b", "b200", "fp8", "calibrated"),
        ("gpt-oss-120b", "l40s", "bf16", "estimated"),
        ("deepseek-r1", "h200-sxm", "fp8", "calibrated"),
        ("deepseek-r1", "b200", "fp8", "estimated"),
        ("nemotron-3-nano", "h200-sxm", "bf16", "calibrated"),
        ("kimi-k2.5", "h200-sxm", "bf16", "calibrated"),
        ("kimi-k2.5", "h200-sxm", "fp8", "estimated"),
        ("qwen3-32b-fp8", "b200", "fp8", "estimated"),
    ],
)
def test_calibrated_is_only_what_timings_cover(name: str, gpu: str, dtype: str, fidelity: str) -> None:
    """The GPU alone says nothing: storage, attention and cache count too."""
    asked = order(name, gpu, kv_dtype=dtype)
    assert fidelity_of(asked) == fidelity
    assert prove(asked).speed["decode_alone"].fidelity == fidelity


def test_figures_that_decisions_hang_on_have_a_band() -> None:
    proof = prove(order("qwen3-32b-fp8", load=CHAT))
    band = band_of(proof.order)
    figures = proof.figures()
    assert figures["full_tokens_per_s_per_gpu"].band == band
    for time in ("prefill_per_token", "decode_alone", "decode_full"):
        assert figures[time].band == band.of_times
    # Queues do not move in proportion to speed: these are computed again at both ends.
    for key in ("capacity", "saturation", "utilisation", "ttft_p95", "itl_p95", "needed_replicas"):
        assert figures[key].band is None and figures[key].span is not None
    assert (figures["weight_files"].band, figures["weight_files"].span) == (None, None)


def test_a_slower_engine_takes_longer() -> None:
    band = Band(low=0.5, high=1.25, rows=10)
    assert band.of_times == Band(low=0.8, high=2.0, rows=10)
    assert str(band) == "x 0.50 to 1.25"
