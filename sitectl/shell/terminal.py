"""Text as a terminal shows it best: wrapped to its width and coloured. A file or a pipe gets it as it is."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TextIO

# What must stay in one piece, or it cannot be copied.
_COMMAND = re.compile(r"(?:python -m \w|\S*sitectl [a-z]|pulumi |kubectl |make |pip install )(?:(?! {2})[^;`\n])*")
_GLUE = "\0"
# Indentation, and a label or first column before two blanks.
_HEAD = re.compile(r" *(?:\S+(?: \S+){0,5} {2,})?")
# Start of a line -> colour, by the numbers of ECMA-48.
_COLOURS = (
    (re.compile(r"^(error|IRREVERSIBLE|PREVIEW FAILED)(?=:)", re.MULTILINE), "1;31"),
    (re.compile(r"^(REPLACED|RESTARTS)(?=:)", re.MULTILINE), "1;33"),
    (re.compile(r"^ *(fix|next)(?=:)", re.MULTILINE), "1;32"),
    (re.compile(r"\b(DOES NOT HOLD|DOES NOT FIT|DO NOT FIT|A LOST NODE ENDS A MODEL|BREAKS ITS TARGETS)\b"), "1;31"),
    (re.compile(r"(?<=: )uncertain(?=\. )"), "1;33"),
)


def prepare_streams() -> None:
    """Make stdout and stderr take any text: a caller may have closed them, or set an encoding that lacks a letter."""
    # Until the process ends; types do not show that a closed stream is None.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def shown(text: str, stream: TextIO) -> str:
    """The text for that stream."""
    if not stream.isatty():
        return text
    return coloured(wrapped(text, shutil.get_terminal_size().columns))


def wrapped(text: str, width: int) -> str:
    """Lines of at most `width`, continued below the text behind a label; tables and commands keep their lines."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width))


def _wrapped(line: str, width: int) -> list[str]:
    if len(line) <= width or line.lstrip().startswith(("|", "#")):
        return [line]
    glued = _COMMAND.sub(_in_one_piece, line)
    match = _HEAD.match(glued)
    head = match[0] if match else ""
    if len(head) > width * 3 // 5:
        head = " " * (len(line) - len(line.lstrip()) + 4)
    body = glued.removeprefix(head) if glued.startswith(head) else glued.lstrip()
    first = glued[: len(glued) - len(body)]
    parts = textwrap.wrap(
        body,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    return [part.replace(_GLUE, " ") for part in parts] or [line]


def _in_one_piece(match: re.Match[str]) -> str:
    """A command that no line is broken in; blanks behind it are the line's own."""
    command = match[0].rstrip()
    return command.replace(" ", _GLUE) + " " * (len(match[0]) - len(command))


def coloured(text: str) -> str:
    """With the colours of what matters, unless NO_COLOR is set or the terminal knows none."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    for pattern, colour in _COLOURS:
        text = pattern.sub(lambda match, colour=colour: f"\033[{colour}m{match[0]}\033[0m", text)  # type: ignore[misc]
    return text
