"""Reads a file that a person names: a regular text file within limits, or one sentence with the reason why not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from floor.problems import ProblemError

LARGEST_BYTES = 1024 * 1024


class UnreadableError(ProblemError):
    """Why the file is not read, and what to do."""


def text_of(path: Path, *, largest: int = LARGEST_BYTES) -> str:
    """The file's text. Raises UnreadableError, and FileNotFoundError for a file that is not there."""
    content = _content(path, largest)
    try:
        # A byte order mark is no part of the text.
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            f"cannot be read: byte {error.start + 1} is no UTF-8", fix="save the file as UTF-8", line=line
        ) from None


def _content(path: Path, largest: int) -> bytes:
    try:
        # Opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableError(f"cannot be read: {reason}", fix="name a file that you may read") from None
    status = os.fstat(descriptor)
    mode, size = status.st_mode, status.st_size
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise UnreadableError(f"cannot be read: {_kind(mode)}, not a file", fix="name a file of text")
    with os.fdopen(descriptor, "rb") as file:
        # Room for all of `largest` would be made for each of a hundred sites that looks at the others.
        content = file.read(min(size, largest) + 1)
        if len(content) > size:
            content += file.read(largest + 1 - len(content))
    if len(content) > largest:
        raise UnreadableError(
            f"cannot be read: larger than {largest:,} bytes", fix="name the right file, or shorten it"
        )
    return content


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a FIFO" if stat.S_ISFIFO(mode) else "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "a socket"
