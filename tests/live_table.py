"""`python -m tests.live_table`: writes the table at the end of docs/live-checks.md.

It has every row of docs/requirements.yaml and every step of docs/hardware-acceptance.md: the live check that looks at
it, by the tests' marks and the steps' commands, or the reason of docs/live-checks.yaml why none does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict

from tests.requirements import ROOT, marked, sections

DATA = ROOT / "docs" / "live-checks.yaml"
PAGE = ROOT / "docs" / "live-checks.md"
STEPS = ROOT / "docs" / "hardware-acceptance.md"
FOLDER = "tests/live/"
_START = "## Each row and step\n"
_HEAD = """
<!-- Written by `make docs` from live-checks.yaml, the tests' marks `row` and hardware-acceptance.md. Edit those. -->

[Rows](requirements.md) and steps of [hardware acceptance](hardware-acceptance.md). {absent} rows are not there at all.

| row or step | check, or why there is none |
|---|---|
"""
_STEP = re.compile(r"^\| (\d+\.\d+) \| (.+?) \|", re.MULTILINE)
_SELECTED = re.compile(r"pytest tests/live\b[^`]*? -k (\w+)")
_RUN = "pytest tests/live"
Reasons = Mapping[str, Sequence[str]]
"""Reason -> rows or steps."""


class Decisions(BaseModel):
    """The data file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows_for_a_person: dict[str, list[str]]
    """Rows that can be seen from outside."""
    rows_not_on_a_site: dict[str, list[str]]
    """Rows that no running site shows."""
    steps_with_a_check: dict[str, list[str]]
    """Check -> steps that it sees too."""
    steps_for_a_person: dict[str, list[str]]


class Step(NamedTuple):
    """One line of a table of docs/hardware-acceptance.md."""

    key: str
    """Section and number, such as 1.2."""
    run: str
    """What is run or done, in Markdown."""


def decisions() -> Decisions:
    """What the data file holds."""
    return Decisions.model_validate(yaml.safe_load(DATA.read_text()))


def steps() -> list[Step]:
    """In the order of the page."""
    return [Step(*match) for match in _STEP.findall(STEPS.read_text())]


def selections() -> set[str]:
    """The words by which steps select checks."""
    return {word for step in steps() for word in _SELECTED.findall(step.run)}


def checks() -> dict[str, list[str]]:
    """Row -> live checks that name it, as `path::function`."""
    live = {row: [test for test in tests if test.startswith(FOLDER)] for row, tests in marked().items()}
    return {row: tests for row, tests in live.items() if tests}


def checks_of_steps(decided: Decisions) -> dict[str, list[str]]:
    """Step -> what looks at it, in Markdown: the checks that its command runs, or one that sees the same."""
    by_step = {step.key: [_selection(step)] for step in steps() if _RUN in step.run}
    paths = {test.partition("::")[2]: test for tests in checks().values() for test in tests}
    for check, keys in decided.steps_with_a_check.items():
        for key in keys:
            by_step.setdefault(key, []).append(_link(paths.get(check, check)))
    return by_step


def undecided(known: Sequence[str], checked: Mapping[str, Sequence[str]], reasons: Sequence[Reasons]) -> Iterator[str]:
    """What is wrong with the decisions about rows, or about steps: each has checks, or exactly one reason.

    known: those that need one.
    """
    given: dict[str, list[str]] = {}
    for reason, keys in (entry for group in reasons for entry in group.items()):
        for key in keys:
            given.setdefault(key, []).append(reason)
    for key in known:
        count = len(given.get(key, []))
        if key not in checked and not count:
            yield f"{key} has neither a live check nor a reason: name it in a check's mark, or in docs/{DATA.name}"
        elif key in checked and count:
            yield f"{key} has a live check, {', '.join(checked[key])}, and a reason in docs/{DATA.name}: remove that"
        elif count > 1:
            yield f"{key} has {count} reasons in docs/{DATA.name}: {'; '.join(given[key])}. Leave one"
    for key in sorted(given.keys() | checked.keys()):
        if key not in known:
            yield f"{key} is not among what can be seen: remove it from docs/{DATA.name}"


def problems(decided: Decisions) -> list[str]:
    """What is wrong with the data file."""
    there = [key for rows in sections().values() for key, row in rows.items() if row.state != "none"]
    row_reasons = [decided.rows_for_a_person, decided.rows_not_on_a_site]
    functions = {test.partition("::")[2] for tests in checks().values() for test in tests}
    return [
        *undecided(there, checks(), row_reasons),
        *undecided([step.key for step in steps()], checks_of_steps(decided), [decided.steps_for_a_person]),
        *(f"{check} is no live check" for check in decided.steps_with_a_check.keys() - functions),
    ]


def render() -> str:
    """The page: as it is up to the table, and the table."""
    own, _, _ = PAGE.read_text().partition(_START)
    absent = sum(row.state == "none" for rows in sections().values() for row in rows.values())
    return own + _START + _HEAD.format(absent=absent) + "".join(f"| {line} |\n" for line in _lines())


def _lines() -> Iterator[str]:
    decided, by_row = decisions(), checks()
    titles = {key: row.title for rows in sections().values() for key, row in rows.items()}
    for key, title in titles.items():
        if key in by_row:
            yield f"{key} {title} | {', '.join(map(_link, by_row[key]))}"
    yield from _of_reasons("a person: ", decided.rows_for_a_person)
    yield from _of_reasons("on no running site: ", decided.rows_not_on_a_site)
    by_step = checks_of_steps(decided)
    for step in steps():
        if step.key in by_step:
            yield f"step {step.key} {step.run} | {', '.join(by_step[step.key])}"
    yield from _of_reasons("a person: ", decided.steps_for_a_person, "step ")


def _of_reasons(before: str, reasons: Reasons, kind: str = "") -> Iterator[str]:
    for reason, keys in reasons.items():
        yield f"{kind}{', '.join(keys)} | {before}{reason}"


def _selection(step: Step) -> str:
    words = _SELECTED.findall(step.run)
    return f"what `-k {words[0]}` selects" if words else "all checks"


def _link(test: str) -> str:
    path, _, function = test.partition("::")
    return f"[{function}](../{path})"


def main() -> None:
    PAGE.write_text(render())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
