"""Processes on the event loop: short commands, and waiting for the end of others."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass


class CommandError(Exception):
    """A host command failed; the message holds its error text."""


async def wait_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; the exit code, 128 + signal for a killed process. No thread and no polling."""
    if process.poll() is None:
        await wait_gone(process.pid)
    code = process.wait()
    return code if code >= 0 else 128 - code


async def wait_gone(pid: int) -> None:
    """Wait for the end of a process, which need not be a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a child that was started as the leader of its own session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Finished:
    code: int
    output: str


async def run(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 30.0, stdin: str = ""
) -> Finished:
    """Run a short command to its end; stdout and stderr together, cut at 10 KiB.

    Raises TimeoutError after killing it when it takes longer than `timeout_s`.
    """
    reading, writing = os.pipe()
    source = subprocess.PIPE if stdin else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            argv, env=env, stdin=source, stdout=writing, stderr=writing, start_new_session=True, close_fds=True
        )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    if process.stdin is not None:
        process.stdin.write(stdin.encode())
        process.stdin.close()
    chunks: list[bytes] = []
    loop = asyncio.get_running_loop()
    os.set_blocking(reading, False)

    def collect() -> None:
        with suppress(BlockingIOError):
            data = os.read(reading, 65536)
            if not data:
                loop.remove_reader(reading)
            elif sum(map(len, chunks)) < 10240:
                chunks.append(data)

    loop.add_reader(reading, collect)
    try:
        # Not wait_for: in Python 3.11 it loses a cancellation that meets the end of what it waits for.
        async with asyncio.timeout(timeout_s):
            code = await wait_exit(process)
        collect()
    except (TimeoutError, asyncio.CancelledError):
        kill_group(process)
        process.wait()
        raise
    finally:
        loop.remove_reader(reading)
        os.close(reading)
    return Finished(code=code, output=b"".join(chunks)[:10240].decode(errors="replace"))


async def check(argv: Sequence[str], *, stdin: str = "") -> str:
    """Run a host command that must work; its output.

    Raises CommandError with the command's output when it does not.
    """
    finished = await run(argv, stdin=stdin)
    if finished.code != 0:
        raise CommandError(f"{' '.join(argv)} failed with {finished.code}: {finished.output.strip()}")
    return finished.output
