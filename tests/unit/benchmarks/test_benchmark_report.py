"""A benchmark's result as text and as a file."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import Result, Table, markdown, show, write


def test_table_keeps_columns_and_shows_three_digits() -> None:
    lines = markdown([{"n": 100, "time": 1.23456}, {"n": 3000, "time": 1234.5}]).splitlines()
    assert [line.split("|")[2].strip() for line in lines] == ["time", "----", "1.23", "1234"]
    assert len({len(line) for line in lines}) == 1


def test_result_is_shown_and_written_whole(tmp_path: Path) -> None:
    result = Result(
        benchmark="some",
        question="How much?",
        conditions={"load": "one client"},
        tables=[Table(title="Times", rows=[{"n": 1}])],
        findings=["It takes a while."],
        machine={"cores": 2},
    )
    text = show(result)
    for part in ("How much?", "- load: one client", "### Times", "| 1 |", "- It takes a while.", "- cores: 2"):
        assert part in text
    written = json.loads(write(result, tmp_path).read_text())
    assert written["tables"] == [{"title": "Times", "rows": [{"n": 1}]}]
    assert written["machine"] == {"cores": 2}
