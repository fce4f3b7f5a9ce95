"""Numbers of things, and lists of them, as text."""

from __future__ import annotations

from collections.abc import Iterable

# Names that people read in one line; the rest is a number.
_MOST_NAMES = 4


def counted(number: int, word: str) -> str:
    """`1 model`, `2 models`, `1,024 GPUs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def listed(names: Iterable[str], between: str = ", ") -> str:
    """`a, b, c, d`, and `a, b, c and 2 more` of five."""
    known = list(names)
    if len(known) <= _MOST_NAMES:
        return between.join(known)
    return f"{between.join(known[: _MOST_NAMES - 1])} and {len(known) - _MOST_NAMES + 1} more"
