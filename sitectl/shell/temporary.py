"""A temporary folder, on a disk that may be full."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sitectl.shell.errors import FULL_DISK, SitectlError

_FIX = "free space there, or name another folder: TMPDIR=DIR"


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder, gone afterwards. Raises SitectlError where it cannot be made, or its disk fills up."""
    try:
        made = tempfile.TemporaryDirectory()
    except OSError as error:
        raise SitectlError(f"no temporary folder can be made: {error.strerror}", fix=_FIX) from None
    with made as name:
        try:
            yield Path(name)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            raise full(str(error.strerror)) from None


def full(reason: str) -> SitectlError:
    """The error of a temporary folder whose disk takes no more."""
    return SitectlError(f"the temporary folder {tempfile.gettempdir()}: {reason}", fix=_FIX)
