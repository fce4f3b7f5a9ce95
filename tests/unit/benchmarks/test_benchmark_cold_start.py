"""The recorded start of a model: what was measured is what the plan predicts, and still predicts."""

from __future__ import annotations

import json

import pytest

from benchmarks import cold_start, report

pytestmark = pytest.mark.row("opening 10", "001.30")


def test_what_was_measured_is_within_a_fifth_of_what_the_plan_predicts_today() -> None:
    """Run the benchmark again where a change of the plan's arithmetic is meant."""
    (table,) = json.loads((report.FOLDER / "cold_start.json").read_text())["tables"]
    measured = {row["what"]: row["measured"] for row in table["rows"]}
    predicted = cold_start.predictions(cold_start.planned())
    assert len(predicted) == 4
    assert measured == pytest.approx(predicted, rel=0.2)
