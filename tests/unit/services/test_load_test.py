"""What is wrong with GPUs that worked together for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.load_test.verdict import Floors, Reached, faults, summary

pytestmark = pytest.mark.row("opening 25")

FLOORS = Floors(tflops=500, memory_gb_s=3000, all_reduce_gb_s=200)
WELL = Reached(tflops=600.4, memory_gb_s=4100, all_reduce_gb_s=360, checksum=7, summed=True)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"tflops": 499.0}, ["GPU 3: 499 TFLOP/s bf16, below 500"]),
        ({"memory_gb_s": 2000.0}, ["GPU 3: 2000 GB/s of memory, below 3000"]),
        ({"all_reduce_gb_s": 90.0}, ["all-reduce: 90 GB/s, below 200"]),
        ({"checksum": 8}, ["GPU 3: its product differs from the other GPUs'"]),
        ({"summed": False}, ["GPU 3: the sum of all GPUs is wrong"]),
    ],
)
def test_one_gpu_below_a_floor_or_other_than_the_rest_is_named(change: dict[str, Any], wrong: list[str]) -> None:
    assert faults([WELL] * 3 + [replace(WELL, **change)] + [WELL] * 4, FLOORS) == wrong


def test_a_node_with_one_gpu_has_nothing_to_sum_among() -> None:
    alone = [replace(WELL, all_reduce_gb_s=0.0)]
    assert faults(alone, FLOORS) == []
    assert summary(alone) == "1 GPUs: at least 600 TFLOP/s bf16, 4100 GB/s memory"
