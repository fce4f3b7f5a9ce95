"""Rows of words as lines of columns."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[tuple[str, ...]], *, numbers: int = 0) -> list[str]:
    """A line for each row, the first of which is the heads. numbers: of the last columns, which end at one edge."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    first_number = len(widths) - numbers
    return [
        "  ".join(
            word.rjust(width) if column >= first_number else word.ljust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
