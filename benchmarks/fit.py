"""How the roofline's constants were found: `python -m benchmarks.fit` descends from those of today and prints its end.

One constant after the other is moved a little, and kept where the loss is less (coordinate descent on logarithms). The
loss is the mean distance of recorded steps by kernels alone, and the mean distance of the published rows that are
fitted to, each with weight 1; beyond a distance of 1.8 a row counts a third, so that rows with a cause of their own
pull little. Two small terms keep constants near where the descent began, and recorded steps within their band.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from benchmarks.packed_run import Stretch, joined, stretches
from benchmarks.published_rows import PublishedRow, published_rows
from benchmarks.recorded_steps import RecordedStep, recorded_steps
from stacks.proof.roofline import CALIBRATION, Calibration, Roofline, kernels_of

_ROUNDS = 20
_FIRST_MOVE = 0.25
_PULL = 0.003
_BAND = 1.72
_BAND_WEIGHT = 0.02
_FAR = 0.6
# Shares of a peak; more than this no kernel reaches.
_MOST_OF_A_PEAK = 0.95
_SHARES = (
    "compute",
    "expert_compute",
    "bandwidth",
    "cache_bandwidth",
    "attention_compute",
    "sink_compute",
    "latent_compute",
    "link",
)
# In no timing.
_KEPT = {("compute", "int4"), ("compute", "mxfp4"), ("bandwidth", "int4"), ("expert_compute", "int4")}

Place = tuple[str, str]
"""A constant's field, and its key where the field holds several."""


@dataclass(frozen=True)
class FittedRow:
    """A published row with the steps that it takes, which no constant changes."""

    row: PublishedRow

    @cached_property
    def steps(self) -> Sequence[Stretch] | None:
        """Of a run, joined; none of a steady state."""
        row = self.row
        if not row.requests and row.metric != "ttft_ms":
            return None
        return joined(stretches(row.lengths, slots=row.slots, batched_tokens=row.series.batched_tokens))

    def pace(self, calibration: Calibration, roofline: Roofline) -> float:
        """Ours over the published speed."""
        if self.steps is None:
            return self.row.pace_of(self.row.derived(calibration))
        seconds = sum(step.seconds(roofline) for step in self.steps)
        if self.row.metric == "ttft_ms":
            return self.row.figure / 1e3 / (self.row.before_s + seconds)
        return self.row.of_requests(len(self.row.lengths) / seconds) / self.row.figure


def fitted_rows() -> list[FittedRow]:
    """The published rows that are not held out."""
    return [FittedRow(row) for row in published_rows() if not row.series.held_out and row.series.measured]


def loss(
    calibration: Calibration, steps: Sequence[RecordedStep], rows: Sequence[FittedRow], start: Calibration
) -> float:
    """What the descent makes small."""
    kernels = kernels_of(calibration)
    rooflines = {(step.gpu, step.repository, step.layout): step.roofline(kernels) for step in _first_of_each(steps)}
    recorded = [
        math.log(step.derived_s(rooflines[step.gpu, step.repository, step.layout]) / step.seconds) for step in steps
    ]
    series = {row.row.series.name: row.row.series for row in rows}
    built = {name: kind.roofline(calibration) for name, kind in series.items()}
    published = [math.log(row.pace(calibration, built[row.row.series.name])) for row in rows]
    outside = sum(max(0.0, abs(distance) - math.log(_BAND)) for distance in recorded)
    moved = sum(math.log(value_at(calibration, place) / value_at(start, place)) ** 2 for place in places(start))
    return _mean(recorded) + _mean(published) + _BAND_WEIGHT * outside + _PULL * moved


def _first_of_each(steps: Sequence[RecordedStep]) -> list[RecordedStep]:
    return list({(step.gpu, step.repository, step.layout): step for step in steps}.values())


def _mean(distances: Sequence[float]) -> float:
    sizes = [abs(distance) for distance in distances]
    return sum(size if size < _FAR else _FAR + (size - _FAR) / 3 for size in sizes) / len(sizes)


def places(calibration: Calibration) -> list[Place]:
    """Every constant that is fitted."""
    known: list[Place] = []
    for field in fields(calibration):
        value = getattr(calibration, field.name)
        known += [(field.name, key) for key in value] if isinstance(value, dict) else [(field.name, "")]
    return [place for place in known if place not in _KEPT]


def value_at(calibration: Calibration, place: Place) -> float:
    """One constant."""
    name, key = place
    value = getattr(calibration, name)
    return float(value[key] if key else value)


def with_value(calibration: Calibration, place: Place, value: float) -> Calibration:
    """The same with one constant changed; within what it can be."""
    name, key = place
    if name in _SHARES:
        value = min(value, _MOST_OF_A_PEAK)
    if name in ("engine", "expert_imbalance"):
        value = max(value, 1.0)
    changed: Any = {**getattr(calibration, name), key: value} if key else value
    return replace(calibration, **{name: changed})


def descend(start: Calibration, rounds: int = _ROUNDS) -> Calibration:
    """The constants at the end of the descent."""
    steps, rows = recorded_steps(), fitted_rows()
    best, least = start, loss(start, steps, rows, start)
    moves = dict.fromkeys(places(start), _FIRST_MOVE)
    for _ in range(rounds):
        for place, move in moves.items():
            for factor in (math.exp(move), math.exp(-move)):
                tried = with_value(best, place, value_at(best, place) * factor)
                reached = loss(tried, steps, rows, start)
                if reached < least - 1e-7:
                    best, least = tried, reached
                    moves[place] = move * 1.2
                    break
            else:
                moves[place] = move * 0.6
    return best


def main() -> int:
    """Print each constant, as it is and as the descent leaves it."""
    end = descend(CALIBRATION)
    for place in places(CALIBRATION):
        label = " ".join(part for part in place if part)
        print(f"{label:28}{value_at(CALIBRATION, place):12.3g}{value_at(end, place):12.3g}")
    steps, rows = recorded_steps(), fitted_rows()
    print(f"loss {loss(CALIBRATION, steps, rows, CALIBRATION):.4f} -> {loss(end, steps, rows, CALIBRATION):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
