"""Executes `compatibility.yaml`: which versions and settings are incompatible, each with its source.

A row speaks where all of its `when` hold. `illegal` does not work at all, `known-bad` works and hurts, `needs` fails
unless its `needs` hold too. Conditions are about facts (see `stacks.plan.conflicts`):

    ">=1.13 <1.14"     a version in this range; 1.13 means 1.13.0
    "==1.13.8"         just this one; "=={nvidia_driver}" compares with another fact
    "is longhorn"      just this text
    "has --seed"       a list that holds this entry

A fact that a site does not decide, such as the chart of a controller that others install, is not there, and a row that
asks for it adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from floor.problems import Problem, file_error
from floor.releases import numbers
from floor.spec import Spec
from stacks.facts.records import read_facts

FILE = Path(__file__).parent / "compatibility.yaml"

Fact = str | frozenset[str]
_COMPARISON = re.compile(r"(==|!=|>=|<=|>|<)(\{[a-z_]+\}|v?[0-9]+(?:\.[0-9]+){0,2})")


class Row(Spec):
    """One line of the table."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    verdict: Literal["illegal", "known-bad", "needs"]
    when: dict[str, str] = Field(min_length=1)
    needs: dict[str, str] = Field(default_factory=dict)
    text: str = Field(min_length=20)
    fix: str = Field(min_length=5)
    source: str = Field(min_length=5)

    @model_validator(mode="after")
    def _needs_are_named(self) -> Row:
        if (self.verdict == "needs") != bool(self.needs):
            raise ValueError(f"{self.id}: `needs` belongs to the verdict needs, and to no other")
        for fact, condition in (*self.when.items(), *self.needs.items()):
            if not _readable(condition):
                raise ValueError(f"{self.id}: {fact}: {condition!r} is no condition")
        return self


@cache
def table() -> tuple[Row, ...]:
    """Every row of the file. Raises SiteError for a file that is wrong."""
    rows = read_facts(FILE, tuple[Row, ...])
    twice = sorted({row.id for row in rows if [other.id for other in rows].count(row.id) > 1})
    if twice:
        problem = Problem(path=(), what=f"written twice: {', '.join(twice)}", fix="give each row an id of its own")
        raise file_error(FILE.name, [problem])
    return rows


def speaking(known: Mapping[str, Fact]) -> Iterator[tuple[Row, list[str]]]:
    """Rows that speak about these facts, each with the facts that it looked at."""
    for row in table():
        if not all(holds(known, fact, condition) for fact, condition in row.when.items()):
            continue
        asked = [fact for fact in row.needs if fact in known]
        if not row.needs or not all(holds(known, fact, row.needs[fact]) for fact in asked):
            yield row, list(dict.fromkeys((*row.when, *asked)))


def holds(known: Mapping[str, Fact], fact: str, condition: str) -> bool:
    """Whether a fact meets a condition; False for one that is not known."""
    value = known.get(fact)
    if value is None:
        return False
    word, _, rest = condition.partition(" ")
    if word == "has":
        return rest in value
    if not isinstance(value, str):
        return False
    if word == "is":
        return value == rest
    return all(_compares(known, value, *match) for match in _COMPARISON.findall(condition))


def _compares(known: Mapping[str, Fact], value: str, operator: str, bound: str) -> bool:
    other = known.get(bound[1:-1]) if bound.startswith("{") else bound
    if not isinstance(other, str):
        return True
    left, right = numbers(value), numbers(other)
    match operator:
        case "==":
            return left == right
        case "!=":
            return left != right
        case ">=":
            return left >= right
        case "<=":
            return left <= right
        case ">":
            return left > right
    return left < right


def _readable(condition: str) -> bool:
    word, _, rest = condition.partition(" ")
    if word in ("has", "is"):
        return bool(rest.strip())
    return " ".join("".join(match) for match in _COMPARISON.findall(condition)) == condition


@cache
def named_flags() -> frozenset[str]:
    """Flags of vLLM that rows speak about."""
    conditions = [row.when["vllm_flags"] for row in table() if "vllm_flags" in row.when]
    return frozenset(condition.removeprefix("has ") for condition in conditions)
