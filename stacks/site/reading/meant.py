"""A site as it was meant: with each misspelt key under the name that was probably meant.

The rest of a site is checked like this, so that a misspelt key is one problem, without those that its lack would have.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from floor.problems import Path, Problem
from stacks.site.reading import validation

# A misspelt section may hold misspelt keys.
_MOST_ROUNDS = 5


@dataclass(frozen=True)
class Meant:
    """Values to check, and what was found in them."""

    values: Any
    checked: validation.Checked
    misspelt: tuple[Problem, ...] = ()
    written: Mapping[Path, Path] = field(default_factory=dict)
    """Where the file has a key, by the path that was meant."""

    def at_written(self, problem: Problem) -> Problem:
        """The problem at the path that the file has."""
        for meant, written in self.written.items():
            if problem.path[: len(meant)] == meant:
                return replace(problem, path=(*written, *problem.path[len(meant) :]))
        return problem


def as_meant(values: Any) -> Meant:
    """The values with misspelt keys renamed, as long as the name that is meant is free."""
    meant = Meant(values, validation.check(values))
    for _ in range(_MOST_ROUNDS):
        renamed, written, misspelt = copy.deepcopy(meant.values), dict(meant.written), list(meant.misspelt)
        for problem in meant.checked.problems:
            section, free = _section(renamed, problem.path[:-1]), (*problem.path[:-1], problem.near)
            if not validation.is_misspelt(problem) or not isinstance(section, dict) or problem.near in section:
                continue
            section[problem.near] = section.pop(problem.path[-1])
            misspelt.append(meant.at_written(problem))
            written = {free: meant.at_written(problem).path, **written}
        if len(misspelt) == len(meant.misspelt):
            break
        meant = Meant(renamed, validation.check(renamed), tuple(misspelt), written)
    return meant


def _section(values: Any, path: Path) -> Any:
    for key in path:
        if isinstance(values, list):
            values = values[int(key)] if key.isdecimal() and int(key) < len(values) else None
        else:
            values = values.get(key) if isinstance(values, dict) else None
    return values
