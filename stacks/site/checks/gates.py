"""Feature gates: names that Kubernetes knows, with values that they may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, nearest, shown
from stacks.facts import feature_gates


def problems(path: Path, gates: Mapping[str, Any]) -> Iterator[Problem]:
    """Gates with which a program does not start; `path` leads to the section or text that names them."""
    table = feature_gates.load()
    for name, value in gates.items():
        if name not in {*table.names()}:
            near = nearest(name, table.names())
            yield Problem(
                path=(*path, name),
                what="is no feature gate of the pinned Kubernetes, which does not start with it",
                near=near,
                fix=f"write {near}" if near else "take it out",
            )
        elif isinstance(value, bool) and table.locked.get(name, value) is not value:
            yield Problem(
                path=(*path, name),
                what="cannot be turned in the pinned Kubernetes, which does not start with it",
                got=shown(value),
                allowed=shown(not value),
                fix="take it out",
            )
