"""Numbers of things as text."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    """`1 model`, `2 models`, `1,024 GPUs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
