"""Reads the files of a log in their order, from where it was before: what was not confirmed is read again.

The log is `NAME`, which Envoy appends to; `NAME.1`, `NAME.2` are earlier ones. A file is done once a later one exists,
as Envoy closes a file before it makes the next (source/common/access_log/access_log_manager_impl.cc, 1.39). While as
much waits as may, `NAME` is a device without room: Envoy counts what it cannot write, as on a full disk, and what waits
is kept. At the limit of its volume the kubelet would end the pod at once, and delete what waits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BEGINNING = 4096
"""Bytes by which a file is known again: their first line has the id of a request."""
_NO_ROOM = Path("/dev/full")
"""No write to it succeeds (full(4)); every container has it (OCI runtime specification, default devices)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """Lines of one file."""

    data: bytes
    end: int
    """Where the next one begins."""
    written_s: float
    """When its file was last written to, in Unix time."""
    is_last: bool = False
    """Whether more may come to its last line."""


class Tail:
    """The log in `path`. Its checkpoint is beside it, and may be lost: then all that is there is read again."""

    def __init__(self, path: Path) -> None:
        self._path, self._checkpoint = path, path.with_name(f"{path.name}.checkpoint")
        self._file: int | None = None
        self._inode = self._offset = 0
        self._stopped_at = -1
        """Size of the newest earlier file when the log was last seen to be stopped."""

    def next(self, *, most_bytes: int, most_lines: int, ends: bool = False) -> Piece | None:
        """The next lines that are whole, the same ones until they are `confirmed`; None where there are none.

        ends: nothing is written any more, so that a line without an end is one too.
        """
        while self._file is not None or self._open():
            assert self._file is not None  # noqa: S101 - for the type checker
            # Before it is read: what is read then is all that it will ever have.
            is_done = self._is_done()
            state = os.fstat(self._file)
            if state.st_size < self._offset:
                log.warning("%s was cut short: it is read from its beginning", self._path)
                self._offset = 0
            data = os.pread(self._file, most_bytes, self._offset)
            whole = _whole_lines(data, most_lines)
            if whole:
                return Piece(data[:whole], self._offset + whole, state.st_mtime)
            if len(data) == most_bytes or (data and is_done):
                return Piece(data, self._offset + len(data), state.st_mtime)
            if not is_done:
                return Piece(data, self._offset, state.st_mtime, is_last=True) if data and ends else None
            self._drop()
        return None

    def confirmed(self, piece: Piece) -> None:
        """Never give it again."""
        self._offset = piece.end
        draft = self._checkpoint.with_suffix(".draft")
        state = {"inode": self._inode, "offset": self._offset, "beginning": self._beginning(self._offset)}
        try:
            draft.write_text(json.dumps(state))
            draft.replace(self._checkpoint)
        except OSError as error:
            # A full disk gets room once lines are shipped; until then a restart sends some again.
            log.warning("no checkpoint: %s", error.strerror)

    def rotate(self, at_bytes: int, most_bytes: int) -> bool:
        """Rename the log once it is that large, and stop it while `most_bytes` of all files are not confirmed.

        Whether Envoy has to open it again, also after an earlier rename.
        """
        earlier, waiting = self._earlier(), self.bytes_behind()
        if self._path.is_symlink():
            if waiting > most_bytes - at_bytes:
                return self._is_written(earlier)
            log.warning("there is room again: Envoy's log goes on")
            self._path.unlink()
        stops = waiting >= most_bytes
        try:
            if self._path.stat().st_size < at_bytes and not stops:
                return False
            self._path.rename(self._path.with_name(f"{self._path.name}.{_number(earlier[-1]) + 1 if earlier else 1}"))
        except FileNotFoundError:
            return bool(earlier)
        if stops:
            log.error("%d bytes wait, and no more may: what Envoy logs now is lost", waiting)
            self._path.symlink_to(_NO_ROOM)
            self._stopped_at = -1
        return True

    def _is_written(self, earlier: list[Path]) -> bool:
        """Whether Envoy may still write to what was the log when it was stopped."""
        size = earlier[-1].stat().st_size if earlier else 0
        grew, self._stopped_at = size != self._stopped_at, size
        return grew

    def bytes_behind(self) -> int:
        """Of all files, without what is confirmed."""
        sizes = 0
        for path in self._files():
            with suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return max(0, sizes - (self._offset if self._file is not None else 0))

    def _earlier(self) -> list[Path]:
        paths = self._path.parent.glob(f"{self._path.name}.*")
        return sorted((path for path in paths if path.suffix[1:].isdecimal()), key=_number)

    def _files(self) -> list[Path]:
        """Oldest first; a log that is stopped is none."""
        return [*self._earlier(), *([self._path] if self._path.is_file() else [])]

    def _open(self) -> bool:
        for path in self._files():
            self._file = os.open(path, os.O_RDONLY)
            self._inode = os.fstat(self._file).st_ino
            self._offset = self._kept_offset()
            return True
        return False

    def _kept_offset(self) -> int:
        """Of the checkpoint where it is this file's; another file may have got its number."""
        try:
            state = json.loads(self._checkpoint.read_bytes())
            offset = int(state["offset"])
            is_own = state["inode"] == self._inode and state["beginning"] == self._beginning(offset)
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return offset if is_own else 0

    def _beginning(self, offset: int) -> str:
        assert self._file is not None  # noqa: S101 - for the type checker
        return hashlib.sha256(os.pread(self._file, min(offset, _BEGINNING), 0)).hexdigest()

    def _is_done(self) -> bool:
        files = self._files()
        return bool(files) and files[-1].stat().st_ino != self._inode

    def _drop(self) -> None:
        """The file has nothing more; a later one exists."""
        assert self._file is not None  # noqa: S101 - for the type checker
        for path in self._files():
            if path.stat().st_ino == self._inode:
                path.unlink()
        os.close(self._file)
        self._file = None


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _whole_lines(data: bytes, most_lines: int) -> int:
    """Bytes of the lines that have an end."""
    pieces = data.split(b"\n", most_lines)
    return len(data) - len(pieces[-1])
