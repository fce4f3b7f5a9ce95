"""Names the properties that differ between an object's live state and its new inputs, and which of them replace it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lab.plugins.kubernetes.kinds import forces_replacement
from lab.plugins.kubernetes.normalizing import is_zero
from lab.plugins.kubernetes.properties import UNKNOWN, Tree

Path = tuple[str | int, ...]

_MISSING: Final = object()


class ChangeKind(Enum):
    """What happens to one property."""

    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True)
class PropertyChange:
    """One changed property; `replaces` means that it cannot be changed in place."""

    change: ChangeKind
    replaces: bool


def compare(live: Tree, new: Tree, old_inputs: Tree, replacing: Sequence[str]) -> dict[str, PropertyChange]:
    """Changes by property path, such as `spec.template.spec.containers[0].args[2]`.

    `live` is the live object cut to the shape of `old_inputs`; both show what the server made of the last request.
    """
    changes: dict[str, PropertyChange] = {}
    _compare_maps((), live, new, old_inputs, replacing, changes)
    return changes


def _compare_maps(
    path: Path, live: Tree, new: Tree, asked: Any, replacing: Sequence[str], changes: dict[str, PropertyChange]
) -> None:
    before = asked if isinstance(asked, dict) else {}
    for key, value in new.items():
        _compare(
            (*path, key),
            live.get(key, _MISSING),
            value,
            before.get(key, _MISSING),
            replacing=replacing,
            changes=changes,
        )
    for key, value in live.items():
        if key not in new and value is not None:
            _record((*path, key), ChangeKind.DELETE, None, replacing, changes)


def _compare(
    path: Path, live: Any, new: Any, asked: Any, *, replacing: Sequence[str], changes: dict[str, PropertyChange]
) -> None:
    if live is _MISSING:
        # A zero value that was asked for before and is not in the live object is one that the server does not repeat.
        if new is None or (is_zero(new) and asked is not _MISSING and is_zero(asked)):
            return
        _record(path, ChangeKind.ADD, new, replacing, changes)
    elif new is UNKNOWN:
        _record(path, ChangeKind.UPDATE, new, replacing, changes)
    elif isinstance(live, dict) and isinstance(new, dict):
        _compare_maps(path, live, new, asked, replacing, changes)
    elif isinstance(live, list) and isinstance(new, list):
        _compare_lists(path, live, new, asked if isinstance(asked, list) else [], replacing, changes)
    elif type(live) is bool or type(new) is bool:
        if live is not new:
            _record(path, ChangeKind.UPDATE, new, replacing, changes)
    elif live != new:
        _record(path, ChangeKind.DELETE if new is None else ChangeKind.UPDATE, new, replacing, changes)


def _compare_lists(
    path: Path,
    live: list[Any],
    new: list[Any],
    asked: list[Any],
    replacing: Sequence[str],
    changes: dict[str, PropertyChange],
) -> None:
    for index, value in enumerate(new):
        before = asked[index] if index < len(asked) else _MISSING
        current = live[index] if index < len(live) else _MISSING
        _compare((*path, index), current, value, before, replacing=replacing, changes=changes)
    for index in range(len(new), len(live)):
        _record((*path, index), ChangeKind.DELETE, None, replacing, changes)


def _record(
    path: Path, change: ChangeKind, value: Any, replacing: Sequence[str], changes: dict[str, PropertyChange]
) -> None:
    # Dropping all metadata looks the same as renaming.
    replaces = forces_replacement(path, value, replacing) or (change is ChangeKind.DELETE and path == ("metadata",))
    changes[path_text(path)] = PropertyChange(change, replaces)


def path_text(path: Path) -> str:
    """The engine's spelling of a property path: dots, `[0]` for indexes, `["a.b"]` for keys with dots or quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif any(mark in part for mark in '."[]'):
            text += '["{}"]'.format(part.replace('"', '\\"'))
        else:
            text += f".{part}" if text else part
    return text


_PATH_PART: Final = re.compile(
    r'\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+|\*)\]|\.?(?P<key>[^.\[\]]+)',
)


def parse_path(text: str) -> Path:
    """The inverse of `path_text`; `[*]` stays the text `*`. Raises ValueError on anything else."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PATH_PART.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not a property path, at character {position}")
        if match["quoted"] is not None:
            parts.append(match["quoted"].replace('\\"', '"'))
        elif match["index"] is not None:
            parts.append("*" if match["index"] == "*" else int(match["index"]))
        else:
            parts.append(match["key"])
        position = match.end()
    return tuple(parts)


def without_ignored(changes: dict[str, PropertyChange], ignored: Sequence[str]) -> dict[str, PropertyChange]:
    """Changes that are not at or below one of the ignored paths."""
    patterns = [parse_path(text) for text in ignored]
    return {
        path: change
        for path, change in changes.items()
        if not any(_contains(pattern, parse_path(path)) for pattern in patterns)
    }


def _contains(pattern: Path, path: Path) -> bool:
    return len(pattern) <= len(path) and all(
        part == "*" or part == step for part, step in zip(pattern, path, strict=False)
    )
