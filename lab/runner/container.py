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

from lab.cluster import network, processes
from lab.errors import LabError
from lab.paths import Lab
from lab.runner.logs import LogSink
from lab.runner.process import Finished, run, wait_exit, wait_gone
from lab.runner.records import LOST_EXIT_CODE, RunRecord, recorded
from lab.runner.sandbox import RunAs, Sandbox, bwrap_argv, on_host, switch_user

# Each process of a container is started with it; its value is LAB/POD UID/CONTAINER/RUN.
RUN_MARK = "INFERENCE_LAB_RUN"
_NSENTER = "/usr/bin/nsenter"
_HOST_ETC_FOLDER = Path("/etc")


def find_bwrap() -> str:
    """The bubblewrap binary.

    Raises LabError when it is not installed.
    """
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise LabError("bubblewrap (bwrap) is not installed", fix="apt-get install bubblewrap")
    return bwrap


def run_mark(lab: Lab, uid: str, container: str, run: int) -> str:
    return f"{pod_mark(lab, uid)}{container}/{run}"


def pod_mark(lab: Lab, uid: str = "") -> str:
    """How the marks of a pod's runs begin, or those of all pods of the lab."""
    return f"{network.mark(lab)}/{uid}/" if uid else f"{network.mark(lab)}/"


class Instance:
    """A started container. Its process is PID 1 of its own PID namespace; when it ends, everything in there is gone.

    Bubblewrap watches it from outside and writes its exit code down, so both live on without the runner.
    """

    def __init__(
        self,
        outer: int | subprocess.Popen[bytes],
        pid: int,
        env: Mapping[str, str],
        log: LogSink,
        who: RunAs,
        status_file: Path,
        mark: str,
    ) -> None:
        self._mark = mark
        self._who = who
        self._outer = outer
        self.pid = pid
        self._env = dict(env)
        self._log = log
        self._status_file = status_file
        self.exited: asyncio.Task[int] = asyncio.create_task(self._wait())

    @classmethod
    def take_over(cls, record: RunRecord, *, status_file: Path, log: LogSink, mark: str) -> Instance:
        """A run that an earlier runner started; one that has ended meanwhile gives its exit code at once."""
        runs = processes.is_alive(record.pid) and processes.birth(record.pid) == record.birth
        env = processes.environment(record.pid) if runs else {}
        pid = recorded(status_file, "child-pid") or 0
        who = RunAs(uid=record.uid, gid=record.gid, groups=tuple(record.groups))
        return cls(record.pid if runs else 0, pid, env, log, who, status_file, mark)

    def record(self, number: int, started_at: str) -> RunRecord:
        """What a later runner needs to take this run over."""
        return RunRecord(
            number=number,
            pid=self.outer_pid,
            birth=processes.birth(self.outer_pid) or 0,
            started_at=started_at,
            log=str(self._log.path),
            uid=self._who.uid,
            gid=self._who.gid,
            groups=self._who.groups,
        )

    @classmethod
    async def start(
        cls,
        sandbox: Sandbox,
        *,
        bwrap: str,
        enter: Sequence[str],
        env: Mapping[str, str],
        log: LogSink,
        status_file: Path,
    ) -> Instance:
        """Start the program; `enter` is the command prefix that joins the pod's network.

        Raises OSError when a host command is missing; a program that cannot start shows as an exit code.
        """
        reading, writing = os.pipe()
        status = os.open(status_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        present = [str(path) for path in _HOST_ETC_FOLDER.iterdir()]
        log.hand_over(on_host(sandbox.identity.uid), on_host(sandbox.identity.gid))
        try:
            process = subprocess.Popen(
                [*enter, *bwrap_argv(sandbox, bwrap=bwrap, info_fd=writing, status_fd=status, host_paths=present)],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log.writing,
                stderr=log.writing,
                pass_fds=(writing, status),
                start_new_session=True,
            )
        except OSError:
            os.close(reading)
            log.close()
            raise
        finally:
            os.close(writing)
            os.close(status)
            log.close_writing()
        # To the end even when it is cancelled: only a program whose process id is known can be ended.
        begun = asyncio.ensure_future(_read_child_pid(reading))
        try:
            pid = await asyncio.shield(begun)
        except asyncio.CancelledError:
            cls(process, await begun, env, log, sandbox.identity, status_file, env[RUN_MARK]).kill()
            raise
        return cls(process, pid, env, log, sandbox.identity, status_file, env[RUN_MARK])

    @property
    def outer_pid(self) -> int:
        """The process that watches the program from outside; 0 when it had ended before this runner began."""
        return self._outer if isinstance(self._outer, int) else self._outer.pid

    async def _wait(self) -> int:
        if isinstance(self._outer, int):
            if self._outer:
                await wait_gone(self._outer)
            code = recorded(self._status_file, "exit-code")
        else:
            code = await wait_exit(self._outer)
        if recorded(self._status_file, "exit-code") is None:
            # The watching process was killed: the program may live on.
            processes.end_started_with(RUN_MARK, lambda mark: mark == self._mark)
        self._log.close()
        return LOST_EXIT_CODE if code is None else code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself; as PID 1 it gets only those it handles, and SIGKILL."""
        if self.pid and processes.is_alive(self.outer_pid):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the program and everything it started, at once."""
        self.signal(signal.SIGKILL)
        if not self.pid and not isinstance(self._outer, int):
            with suppress(ProcessLookupError):
                self._outer.kill()

    def log_tail(self) -> str:
        return self._log.tail()

    async def execute(self, command: Sequence[str], timeout_s: float) -> Finished:
        """Run a command in the container's namespaces with its environment and as its user.

        Raises TimeoutError after killing it.
        """
        enter = [_NSENTER, "--target", str(self.pid), "--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd"]
        return await run([*enter, "--", *switch_user(self._who), *command], env=self._env, timeout_s=timeout_s)


async def _read_child_pid(descriptor: int) -> int:
    """The program's PID out of bubblewrap's JSON; 0 when it ended before it could report."""
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
