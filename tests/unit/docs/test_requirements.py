"""docs/requirements.md is up to date, each row that tests name exists, and what works is held by a test."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from tests import requirements
from tests.requirements import ROOT, Row, marked, sections

ROWS = {key: row for rows in sections().values() for key, row in rows.items()}
# As docstrings used to say it, in passing and unchecked.
CITED = re.compile(r"\b00[0-4]\.\d\d?\b|\bC\.0[1-6]\b|\b[Oo]pening \d+\b|\(00[0-4]\)")


def test_the_page_is_not_stale() -> None:
    assert requirements.PAGE.read_text() == requirements.render(), "run `make docs`"


def test_every_row_of_the_sources_is_there() -> None:
    last = {"000": 41, "001": 40, "002": 18, "003": 32, "004": 23, "C": 6}
    expected = [f"{document}.{number:02}" for document, count in last.items() for number in range(1, count + 1)]
    assert list(ROWS) == [*expected, *(f"opening {number}" for number in range(1, 31))]


def test_tests_name_rows_that_exist() -> None:
    assert {row: tests for row, tests in marked().items() if row not in ROWS} == {}


def test_what_works_is_held_by_a_test() -> None:
    assert [key for key, row in ROWS.items() if row.state == "works" and not marked().get(key)] == []


def test_what_is_not_there_is_held_by_none() -> None:
    """A test of a row that is not there names the wrong row, or the state is out of date."""
    assert {key: marked()[key] for key, row in ROWS.items() if row.state == "none" and key in marked()} == {}


def test_rows_are_named_by_the_mark_alone() -> None:
    passing = []
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name in ("requirements.py", "test_requirements.py"):
            continue
        lines = path.read_text().splitlines()
        passing += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, line in enumerate(lines, 1)
            if CITED.search(line) and "mark.row(" not in line
        ]
    assert passing == []


@pytest.mark.parametrize(("state", "why"), [("works", "not quite"), ("partly", ""), ("none", "")])
def test_a_row_says_what_is_missing_or_works(state: str, why: str) -> None:
    with pytest.raises(ValidationError, match="says what is missing"):
        Row.model_validate({"title": "x", "state": state, "why": why})
