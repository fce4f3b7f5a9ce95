"""One run of one container: its process under bubblewrap, its signals, its end, and commands run inside it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.errors import LabError
from lab.runner.logs import LogSink
from lab.runner.process import Finished, run, wait_exit
from lab.runner.sandbox import Identity, Sandbox, bwrap_argv, switch_user

_NSENTER = "/usr/bin/nsenter"
_HOST_ETC_FOLDER = Path("/etc")


def find_bwrap() -> str:
    """The bubblewrap binary.

    Raises LabError when it is not installed.
    """
    found = shutil.which("bwrap")
    if not found:
        raise LabError("bubblewrap (bwrap) is not installed", fix="apt-get install bubblewrap")
    return found


class Instance:
    """A started container. Its process is PID 1 of its own PID namespace; when it ends, everything in there is gone."""

    def __init__(
        self, process: subprocess.Popen[bytes], pid: int, env: Mapping[str, str], log: LogSink, who: Identity
    ) -> None:
        self._who = who
        self._process = process
        self.pid = pid
        self._env = dict(env)
        self._log = log
        self.exited: asyncio.Task[int] = asyncio.create_task(self._wait())

    @classmethod
    async def start(
        cls, sandbox: Sandbox, *, bwrap: str, enter: Sequence[str], env: Mapping[str, str], log: LogSink
    ) -> Instance:
        """Start the program; `enter` is the command prefix that joins the pod's network.

        Raises OSError when a host command is missing; a program that cannot start shows as an exit code.
        """
        reading, writing = os.pipe()
        present = [str(path) for path in _HOST_ETC_FOLDER.iterdir()]
        log.hand_over(sandbox.identity.uid, sandbox.identity.gid)
        try:
            process = subprocess.Popen(
                [*enter, *bwrap_argv(sandbox, bwrap=bwrap, info_fd=writing, host_paths=present)],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log.writing,
                stderr=log.writing,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except OSError:
            os.close(reading)
            log.close()
            raise
        finally:
            os.close(writing)
            log.close_writing()
        try:
            pid = await _read_child_pid(reading)
        except asyncio.CancelledError:
            process.kill()
            raise
        return cls(process, pid, env, log, sandbox.identity)

    async def _wait(self) -> int:
        code = await wait_exit(self._process)
        self._log.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself; as PID 1 it gets only those it handles, and SIGKILL."""
        if self.pid and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the program and everything it started, at once."""
        self.signal(signal.SIGKILL)
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def log_tail(self) -> str:
        return self._log.tail()

    async def execute(self, command: Sequence[str], timeout_s: float) -> Finished:
        """Run a command in the container's namespaces with its environment and as its user.

        Raises TimeoutError after killing it.
        """
        enter = [_NSENTER, "--target", str(self.pid), "--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd=/"]
        return await run([*enter, "--", *switch_user(self._who), *command], env=self._env, timeout_s=timeout_s)


async def _read_child_pid(descriptor: int) -> int:
    """The program's PID out of bubblewrap's JSON; 0 when it ended before it could say."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    text = b""
    more = asyncio.Event()
    loop.add_reader(descriptor, more.set)
    try:
        while True:
            await more.wait()
            more.clear()
            chunk = b""
            with suppress(BlockingIOError):
                chunk = os.read(descriptor, 4096)
                if not chunk:
                    break
            text += chunk
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return int(json.loads(text)["child-pid"]) if text else 0
