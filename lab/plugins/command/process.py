"""Runs one command to its end: own process group, both streams captured and logged, ended on cancel or timeout."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_MASK = "[secret]"
# Shorter secrets are parts of ordinary text; masking them would only make the text unreadable.
_SHORTEST_MASKED = 4
_TAIL_LINES = 20
_COMMAND_SHOWN = 200
_GRACE_S = 5.0


class CommandFailedError(Exception):
    """The command did not start, or ended with another code than 0; the message is masked."""


@dataclass(frozen=True)
class Redactor:
    """Masks secret values, and each line of those that have several."""

    texts: Iterable[str]
    _masked: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        pieces = {piece for text in self.texts for piece in (text, text.strip(), *text.splitlines())}
        longest_first = sorted((piece for piece in pieces if len(piece) >= _SHORTEST_MASKED), key=len, reverse=True)
        object.__setattr__(self, "_masked", tuple(longest_first))

    def __call__(self, text: str) -> str:
        for piece in self._masked:
            text = text.replace(piece, _MASK)
        return text


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run. `timeout_s` of 0 means no limit. `logged` names the streams whose lines are shown."""

    command: str
    interpreter: Sequence[str] = ("/bin/sh", "-c")
    stdin: str = ""
    folder: Path
    environment: Mapping[str, str]
    timeout_s: float = 0.0
    logged: frozenset[str] = frozenset({"stdout", "stderr"})
    redact: Redactor


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the command wrote, without the last line end."""

    stdout: str
    stderr: str


class JobRunner:
    """Runs jobs from several threads at once; `cancel` ends all that run and refuses later ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancelled = False

    def run(self, job: Job, show: Callable[[str], None]) -> Result:
        """Run to the end; `show` gets each logged line, masked. Raises CommandFailedError."""
        process = self._start(job)
        captured: dict[str, bytes] = {}
        streams = (("stdout", process.stdout), ("stderr", process.stderr))
        threads = [
            threading.Thread(target=_drain, args=(name, stream, captured, job, show), daemon=True)
            for name, stream in streams
        ]
        if job.stdin:
            threads.append(threading.Thread(target=_feed, args=(process.stdin, job.stdin), daemon=True))
        for thread in threads:
            thread.start()
        late = threading.Event()
        clock = threading.Timer(job.timeout_s, _end_late, args=(process, late))
        clock.daemon = True
        if job.timeout_s:
            clock.start()
        try:
            for thread in threads:
                thread.join()
            code = process.wait()
        finally:
            clock.cancel()
            with self._lock:
                self._running.discard(process)
        if code != 0:
            raise CommandFailedError(self._explain(job, code, captured, late=late.is_set()))
        return Result(stdout=_text(captured["stdout"]), stderr=_text(captured["stderr"]))

    def cancel(self) -> None:
        """End every running command with its children."""
        with self._lock:
            self._cancelled = True
            running = list(self._running)
        for process in running:
            threading.Thread(target=_end, args=(process,)).start()

    def wait(self, timeout_s: float) -> None:
        """Give ended commands time to go."""
        with self._lock:
            running = list(self._running)
        for process in running:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                continue

    def _start(self, job: Job) -> subprocess.Popen[bytes]:
        if not job.folder.is_dir():
            raise CommandFailedError(f"`dir` is {job.redact(str(job.folder))}, which is no folder on this machine")
        with self._lock:
            if self._cancelled:
                raise CommandFailedError("cancelled before the command started")
            try:
                process = subprocess.Popen(
                    [*job.interpreter, job.command],
                    stdin=subprocess.PIPE if job.stdin else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=job.folder,
                    env=dict(job.environment),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                raise CommandFailedError(
                    f"cannot start {job.redact(job.interpreter[0])}: {job.redact(reason)}"
                ) from None
            self._running.add(process)
        return process

    def _explain(self, job: Job, code: int, captured: Mapping[str, bytes], *, late: bool) -> str:
        shown = job.redact(job.command).strip()
        shown = shown if len(shown) <= _COMMAND_SHOWN else shown[:_COMMAND_SHOWN] + "..."
        if late:
            how = f"ended after its time limit of {job.timeout_s:g} s"
        elif self._cancelled:
            how = "ended because the update was cancelled"
        elif code < 0:
            how = f"ended by signal {signal.Signals(-code).name}"
        else:
            how = f"exit status {code}"
        name = "stderr" if captured["stderr"].strip() or "stdout" not in job.logged else "stdout"
        # Who turned logging off may have secrets in the output that no input names.
        if name not in job.logged:
            return f"{how}: running {shown!r} (its output is withheld, as `logging` asks)"
        tail = job.redact(_text(captured[name])).splitlines()[-_TAIL_LINES:]
        return "\n".join([f"{how}: running {shown!r}", *tail])


def _drain(
    name: str, stream: IO[bytes] | None, captured: dict[str, bytes], job: Job, show: Callable[[str], None]
) -> None:
    chunks = []
    for line in stream or ():
        chunks.append(line)
        if name in job.logged:
            show(job.redact(line.decode(errors="replace").rstrip("\r\n")))
    captured[name] = b"".join(chunks)


def _feed(stream: IO[bytes] | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text.encode())
        stream.close()
    except BrokenPipeError:
        # A command may end without reading its input; its exit code alone decides.
        return


def _end_late(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end, then make it: what a shell started must not outlive it and hold the pipes open."""
    if not _signal_group(process, signal.SIGTERM):
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace").removesuffix("\n")
