"""`python -m tests.requirements`: writes docs/requirements.md from docs/requirements.yaml and the tests' marks.

A test says which rows it holds: `@pytest.mark.row("000.16")`, or `pytestmark` for its whole module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "requirements.yaml"
PAGE = ROOT / "docs" / "requirements.md"
State = Literal["works", "partly", "none"]
_STATES: Mapping[State, str] = {"works": "works", "partly": "partly", "none": "not there"}
_HEAD = """\
# Requirements

<!-- Written by `make docs` from requirements.yaml and the tests' marks `row`. Edit those. -->

What the platform should do, row by row: how far it is, and the tests for it. "Works" means that tests show it on
the emulated site: the platform has not run on a GPU yet. {count}
"""


class Row(BaseModel):
    """One row of the data file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    state: State
    why: str = ""
    """What is missing."""

    @model_validator(mode="after")
    def _says_what_is_missing(self) -> Row:
        if (self.state == "works") == bool(self.why):
            raise ValueError("`why` says what is missing, so a row has it unless its state is `works`")
        return self


def sections() -> dict[str, dict[str, Row]]:
    """Heading -> rows by id, in the order of the file."""
    document = yaml.safe_load(DATA.read_text())
    return {heading: {key: Row.model_validate(row) for key, row in rows.items()} for heading, rows in document.items()}


@cache
def marked() -> dict[str, list[str]]:
    """Row -> the tests that name it, as `path` or `path::function`."""
    tests_by_row: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for row, test in _of_module(path):
            tests_by_row.setdefault(row, []).append(test)
    return tests_by_row


def _of_module(path: Path) -> Iterator[tuple[str, str]]:
    name = str(path.relative_to(ROOT))
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name("pytestmark")]):
                yield from ((row, name) for row in _rows(node.value))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from ((row, f"{name}::{node.name}") for mark in node.decorator_list for row in _rows(mark))


def _rows(mark: ast.expr) -> Iterator[str]:
    for node in ast.walk(mark):
        match node:
            case ast.Call(func=ast.Attribute(attr="row"), args=given):
                yield from (str(row.value) for row in given if isinstance(row, ast.Constant))


def render() -> str:
    """The page."""
    tests, all_rows = marked(), sections()
    states = [row.state for rows in all_rows.values() for row in rows.values()]
    reported = ", ".join(f"{states.count(state)} {word}" for state, word in _STATES.items())
    lines = [_HEAD.format(count=f"Of {len(states)} rows: {reported}.")]
    for heading, rows in all_rows.items():
        lines += [f"## {heading}", "| row | what | state | tests |", "|---|---|---|---|"]
        lines += [_line(key, row, tests) for key, row in rows.items()]
        lines.append("")
    return "\n".join(lines)


def _line(key: str, row: Row, tests: Mapping[str, list[str]]) -> str:
    state = _STATES[row.state] + (f": {row.why}" if row.why else "")
    return f"| {key} | {row.title} | {state} | {', '.join(map(_link, tests.get(key, [])))} |"


def _link(test: str) -> str:
    path, _, function = test.partition("::")
    return f"[{function or re.sub(r'[.]py$', '', Path(path).name)}](../{path})"


def main() -> None:
    PAGE.write_text(render())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
