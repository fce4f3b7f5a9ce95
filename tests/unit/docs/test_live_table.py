"""Each requirement row and each step of hardware acceptance has a live check, or a reason why a person reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests import live_table
from tests.live_table import Decisions, Reasons
from tests.requirements import ROOT

pytestmark = pytest.mark.row("opening 5")

REASON = "a reason"


def test_the_table_is_not_stale() -> None:
    assert live_table.PAGE.read_text() == live_table.render(), "run `make docs`"


def test_each_row_and_step_has_a_check_or_a_reason() -> None:
    assert live_table.problems(live_table.decisions()) == []


def test_every_live_check_names_a_row() -> None:
    named = {test for tests in live_table.checks().values() for test in tests}
    files = (ROOT / live_table.FOLDER).glob("test_*.py")
    functions = ((file, re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)) for file in files)
    assert {f"{file.relative_to(ROOT)}::{name}" for file, names in functions for name in names} == named


@pytest.mark.parametrize(
    ("checked", "reasons", "problem"),
    [
        ([], {}, "x has neither a live check nor a reason"),
        (["x"], {REASON: ["x"]}, "x has a live check, a check, and a reason"),
        ([], {REASON: ["x"], "another": ["x"]}, "x has 2 reasons .*: a reason; another. Leave one"),
        (["x"], {REASON: ["y"]}, "y is not among what can be seen"),
        (["x", "y"], {}, "y is not among what can be seen"),
    ],
)
def test_what_is_undecided_is_refused(checked: Sequence[str], reasons: Reasons, problem: str) -> None:
    """Of one row, x."""
    problems = [*live_table.undecided(["x"], {key: ["a check"] for key in checked}, [reasons])]
    assert re.match(problem, problems[-1]), problems


@pytest.mark.parametrize("group", Decisions.model_fields)
def test_a_decision_that_is_taken_out_is_missed(group: str) -> None:
    decided = live_table.decisions()
    (_, keys), *others = getattr(decided, group).items()
    problems = live_table.problems(decided.model_copy(update={group: dict(others)}))
    assert {problem.partition(" has neither ")[0] for problem in problems} == set(keys)


def test_a_check_that_is_not_there_is_refused() -> None:
    decided = live_table.decisions()
    renamed = {f"{check}_once": keys for check, keys in decided.steps_with_a_check.items()}
    problems = live_table.problems(decided.model_copy(update={"steps_with_a_check": renamed}))
    assert sorted(problems) == sorted(f"{check} is no live check" for check in renamed)


def test_steps_are_numbered_in_their_order() -> None:
    numbers = [tuple(map(int, step.key.split("."))) for step in live_table.steps()]
    assert numbers[0] == (1, 1)
    after = {later: ((section, step + 1), (section + 1, 1)) for (section, step), later in pairwise(numbers)}
    assert [step for step, allowed in after.items() if step not in allowed] == []


def test_every_line_of_the_steps_tables_has_a_number() -> None:
    lines = [line for line in live_table.STEPS.read_text().splitlines() if line.startswith("| ")]
    assert len([line for line in lines if not line.startswith("| step |")]) == len(live_table.steps())


def test_what_a_step_selects_is_there() -> None:
    named = {test for tests in live_table.checks().values() for test in tests}
    assert live_table.selections()
    assert {word for word in live_table.selections() if not any(word in test for test in named)} == set()
