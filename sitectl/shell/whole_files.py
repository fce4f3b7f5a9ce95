"""Writes a file atomically: next to its place first, so that a full disk or a kill leaves the old file, or none."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def write(path: Path, text: str, *, private: bool = False) -> None:
    """Write the file, or leave it as it was; `private` keeps it to its owner. Raises OSError with the file's name."""
    if not _is_replaceable(path):
        with path.open("w") as stream:
            stream.write(text)
        return
    target = path.resolve() if path.is_symlink() else path
    draft = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "w") as file:
            if target.exists() and not private:
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            file.write(text)
        draft.replace(target)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def write_unfinished(path: Path, text: str) -> None:
    """Write a file without a draft, where its folder is not read yet. Raises OSError with the file's name."""
    try:
        path.write_text(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_new(path: Path, text: str) -> None:
    """`write` to a name that is free. Raises FileExistsError for one that is not."""
    # Takes the name, so that of two that write at once one is refused.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        write(path, text)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _is_replaceable(path: Path) -> bool:
    """Whether a file can take its place: not that of a FIFO or a device, nor of a stream behind a name in /dev."""
    is_regular = path.is_file() or not path.exists()
    return is_regular and not any(path.is_relative_to(folder) for folder in ("/dev", "/proc"))
