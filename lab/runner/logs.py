"""A container's output on its way from a named pipe to a file of limited size."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20
_END = 0
_NOTHING_NOW = -1
# Output is collected for this long between two reads, so a chatty program costs the runner few wake-ups.
_COLLECT_S = 0.05
_KEPT_RUNS = 5
# What a container writes while no runner reads.
_PIPE_BYTES = 1 << 20
DEFAULT_LIMIT_BYTES = 10 * 2**20


def _drop_old_runs(folder: Path) -> None:
    """Keep the logs of a few earlier runs: a container that crashes for days must not fill the disk."""
    runs = sorted(folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
    for log in runs[:-_KEPT_RUNS]:
        log.unlink()
        log.with_name(log.name + ".1").unlink(missing_ok=True)


class LogSink:
    """Copies a pipe into `path`; a full file becomes `path`.1 and a new one starts, so two files of `limit` at most.

    The pipe has a name, so that the next runner finds it, and its writer has it open for reading too, so that a
    container never meets a broken pipe. With `taken_over` the pipe and the file are an earlier runner's.
    """

    def __init__(
        self, path: Path, pipe: Path, *, taken_over: bool = False, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.path = path
        self._pipe = pipe
        self._limit = limit_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_old_runs(path.parent)
        self._file: BinaryIO = path.open("ab" if taken_over else "wb", buffering=0)
        self._size = self._file.tell()
        if not taken_over:
            pipe.unlink(missing_ok=True)
        if not pipe.exists():
            os.mkfifo(pipe, 0o600)
        self._reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.writing = -1 if taken_over else os.open(pipe, os.O_RDWR)
        fcntl.fcntl(self._reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(self._reading, self._on_data)

    def hand_over(self, uid: int, gid: int) -> None:
        """Let the container's user open /dev/stdout again, as it may in a real container."""
        os.fchown(self.writing, uid, gid)

    def close_writing(self) -> None:
        """The runner's own copy of the pipe's end goes once the program has it."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Copy what is still in the pipe and close everything."""
        self.close_writing()
        if not self._open:
            return
        self._loop.remove_reader(self._reading)
        while self._copy() > 0:
            pass
        self._open = False
        os.close(self._reading)
        self._pipe.unlink(missing_ok=True)
        self._file.close()

    def tail(self, *, max_bytes: int = 2048, max_lines: int = 80) -> str:
        """The end of what was written, for a termination message."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - max_bytes))
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-max_lines:])

    def _on_data(self) -> None:
        self._loop.remove_reader(self._reading)
        if self._copy() != _END:
            self._loop.call_later(_COLLECT_S, self._listen)

    def _listen(self) -> None:
        if self._open:
            self._loop.add_reader(self._reading, self._on_data)

    def _copy(self) -> int:
        """Copy one chunk; its size, _END at the end of the output, _NOTHING_NOW when the pipe is empty."""
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return _NOTHING_NOW
        if data:
            self._file.write(data)
            self._size += len(data)
            if self._size >= self._limit:
                self._rotate()
        return len(data)

    def _rotate(self) -> None:
        self._file.close()
        self.path.replace(self.path.with_name(self.path.name + ".1"))
        self._file = self.path.open("wb", buffering=0)
        self._size = 0
