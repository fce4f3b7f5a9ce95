"""The proof's figures next to those of a real vLLM with made-up weights on one GPU: memory, latencies, throughput."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.gpu.derived import MEMORY_BANDS, Derived, GpuRow, gpu_rows
from benchmarks.gpu.measured import MeasuredRun, measured_run
from benchmarks.report import Cell, Result, Table
from lab.paths import Lab
from stacks.facts.hardware import GPUS, Precision
from stacks.proof.roofline import CALIBRATION

HELP = "the proof's figures next to those of vLLM on one H200; needs no lab and no GPU"
NEEDS_LAB = False
PARAMETERS = ()
_PRECISIONS: dict[str, Precision] = {"none": "bf16", "fp8": "fp8", "fp8-block": "fp8"}


def run(lab: Lab) -> Result:  # noqa: ARG001
    """Derives today's figure for every measured one; neither the lab nor a GPU is asked."""
    measured = measured_run()
    rows = gpu_rows(measured)
    return Result(
        benchmark="gpu",
        question="How close is the proof to one real GPU?",
        conditions={
            "gpu": measured.gpu,
            "engine": f"vLLM {measured.engine}, torch {measured.software['torch']}",
            "measured": measured.measured,
        },
        tables=[
            Table(title="Held to a band", rows=[_line(row) for row in rows]),
            Table(title="Parts of a start, without a band", rows=list(_parts(measured))),
            Table(title="The GPU itself, without vLLM", rows=list(_probe(measured))),
        ],
        findings=[
            _finding("Memory", [row for row in rows if row.metric in MEMORY_BANDS]),
            _finding("Speed", [row for row in rows if row.metric not in MEMORY_BANDS]),
        ],
    )


def _line(row: GpuRow) -> dict[str, Cell]:
    return {
        "model": row.model,
        "load": row.step,
        "figure": row.metric,
        "measured": row.measured,
        "proof": _finite(row.derived),
        "from": _finite(row.low),
        "to": _finite(row.high),
        "proof / measured": round(row.ratio, 2) if math.isfinite(row.ratio) else "overload",
        "inside": {True: "yes", False: "no", None: "no upper end"}[row.inside],
    }


def _finite(value: float) -> Cell:
    return value if math.isfinite(value) else "overload"


def _parts(measured: MeasuredRun) -> Iterator[dict[str, Cell]]:
    for model in measured.models:
        ours = Derived(measured, model).memory
        for metric, figure in model.start.items():
            if metric not in MEMORY_BANDS:
                yield {"model": model.name, "figure": metric, "measured": figure, "proof": ours[metric]}


def _probe(measured: MeasuredRun) -> Iterator[dict[str, Cell]]:
    """Beside the data sheet, of which the roofline takes a share."""
    gpu, probe = GPUS[measured.gpu], measured.probe

    def line(figure: str, value: float, sheet: float, taken: float | None) -> dict[str, Cell]:
        return {"figure": figure, "measured": value, "data sheet": sheet, "share": value / sheet, "proof's": taken}

    yield line("memory, bytes", probe["memory_bytes"], gpu.memory_bytes, 1.0)
    yield line("largest read, bytes/s", probe["read_bytes_per_s"], gpu.memory_bytes_per_s, CALIBRATION.cache_bandwidth)
    for kind, precision in _PRECISIONS.items():
        flops = probe["flops"][kind]
        yield line(f"products {kind}, FLOP/s", flops, gpu.flops_at(precision), CALIBRATION.compute[kind])
    yield line("host to GPU, bytes/s", probe["pinned_to_gpu_bytes_per_s"], gpu.pcie_bytes_per_s, None)


def _finding(what: str, rows: Sequence[GpuRow]) -> str:
    ratios = [row.ratio for row in rows if math.isfinite(row.ratio)]
    judged = [row.inside for row in rows if row.inside is not None]
    open_ = f", {len(rows) - len(judged)} more have no upper end" if len(judged) < len(rows) else ""
    return (
        f"{what}: {sum(judged)} of {len(judged)} inside of the band{open_}; proof / measured {median(ratios):.2f} "
        f"(median), {min(ratios):.2f} to {max(ratios):.2f}."
    )
