"""What of a container outlives its runner, and how the next one takes it over; needs bubblewrap, not a lab."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lab.cluster import processes
from lab.paths import CHECKOUT, Lab
from lab.runner.container import RUN_MARK, Instance, run_mark
from lab.runner.records import LOST_EXIT_CODE, PodRecord, Records, RunRecord
from lab.runner.sandbox import on_host
from lab.runner.survivors import SurvivingPod, end_all_but, find

UID = "uid-of-a-pod"

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None or os.geteuid() != 0, reason="sandboxes need bubblewrap and root"
)

# A runner that starts one container, writes it down, and is killed at once.
RUNNER = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from pathlib import Path
    from lab.paths import Lab
    from lab.runner.container import RUN_MARK, Instance, run_mark
    from lab.runner.images import HostFiles
    from lab.runner.logs import LogSink
    from lab.runner.records import PodRecord, Records
    from lab.runner.sandbox import RunAs, Sandbox

    async def main(home, index, user, script):
        lab = Lab(home=Path(home), cache=Path(home), index=int(index))
        records = Records(lab.pods / "uid-of-a-pod")
        records.write_pod(PodRecord(boot="b", address="198.18.1.2", network=""))
        sandbox = Sandbox(
            hostname="h",
            command=["sh", "-c", script],
            files=HostFiles(binds=()),
            identity=RunAs(uid=int(user), gid=int(user)),
        )
        instance = await Instance.start(
            sandbox,
            bwrap="/usr/bin/bwrap",
            enter=[],
            env={"PATH": "/usr/bin:/bin", RUN_MARK: run_mark(lab, "uid-of-a-pod", "main", 3)},
            log=LogSink(lab.logs / "3.log", records.output("main")),
            status_file=records.status_file("main"),
        )
        records.write_run("main", instance.record(3, "2026-01-01T00:00:00Z"))
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main(*sys.argv[1:]))
    """
)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Of an index that no other has: a lab's runs are ended by their mark, also those of one that is up here."""
    return Lab(home=tmp_path, cache=tmp_path, index=1000 + os.getpid())


def started_by_a_killed_runner(lab: Lab, script: str, user: int = 0) -> None:
    argv = [str(lab.home), str(lab.index), str(user), script]
    done = subprocess.run([sys.executable, "-c", RUNNER, *argv], cwd=CHECKOUT, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("user", [0, 65532])
def test_container_goes_on_and_its_exit_code_and_output_reach_the_next_runner(lab: Lab, user: int) -> None:
    started_by_a_killed_runner(lab, "echo one; sleep 5; echo two; exit 7", user)

    async def next_runner() -> tuple[int, int]:
        run = find(lab)[UID].runs["main"]
        assert processes.is_alive(run.instance.pid)
        finished = await run.instance.execute(["sh", "-c", "id -u"], 10)
        return int(finished.output), await run.instance.exited

    assert asyncio.run(next_runner()) == (on_host(user), 7)
    assert (lab.logs / "3.log").read_text().split() == ["one", "two"]


def test_container_that_ended_while_no_runner_looked_gives_its_exit_code(lab: Lab) -> None:
    started_by_a_killed_runner(lab, "sleep 0.6; exit 5")
    watching = json.loads((lab.pods / UID / "runs" / "main.run.json").read_text())["pid"]
    processes.wait_gone([watching], 10)

    async def next_runner() -> int:
        return await find(lab)[UID].runs["main"].instance.exited

    assert asyncio.run(next_runner()) == 5


def test_program_whose_watcher_was_killed_is_ended_and_counts_as_lost(lab: Lab) -> None:
    """Nothing would read its exit code, so it must not continue as if it were supervised."""
    started_by_a_killed_runner(lab, "sleep 600", 65532)
    watching = json.loads((lab.pods / UID / "runs" / "main.run.json").read_text())["pid"]
    os.kill(watching, signal.SIGKILL)
    processes.wait_gone([watching], 10)

    async def next_runner() -> int:
        return await find(lab)[UID].runs["main"].instance.exited

    assert asyncio.run(next_runner()) == LOST_EXIT_CODE
    assert run_mark(lab, UID, "main", 3) not in processes.variables(RUN_MARK).values()


def test_what_no_record_tells_of_is_ended_and_what_is_kept_is_not(lab: Lab) -> None:
    mark = run_mark(lab, UID, "main", 3)
    for kept in (True, False):
        started_by_a_killed_runner(lab, "sleep 600", 65532)

        async def next_runner(kept: bool) -> None:
            pods = find(lab)
            end_all_but(lab, pods if kept else {UID: SurvivingPod(record=pods[UID].record)})

        asyncio.run(next_runner(kept))
        assert (mark in processes.variables(RUN_MARK).values()) is kept
        assert processes.end_started_with(RUN_MARK, lambda value: value == mark) == set()


def test_reused_process_id_is_not_taken_for_the_container(lab: Lab) -> None:
    records = Records(lab.pods / UID)
    records.write_pod(PodRecord(boot="b", address="198.18.1.2", network=""))
    mine = os.getpid()
    born = processes.birth(mine) or 0
    records.status_file("main").write_text(json.dumps({"child-pid": mine}) + "\n")
    later = RunRecord(
        number=0, pid=mine, birth=born - 1, started_at="", log=str(lab.logs / "l"), uid=0, gid=0, groups=()
    )
    records.write_run("main", later)

    async def next_runner() -> int:
        instance: Instance = find(lab)[UID].runs["main"].instance
        instance.kill()
        return await instance.exited

    assert asyncio.run(next_runner()) == LOST_EXIT_CODE


def test_half_written_records_count_as_none(lab: Lab) -> None:
    records = Records(lab.pods / UID)
    records.make_folder()
    (lab.pods / UID / "runs" / "pod.json").write_text("{")
    assert find(lab) == {}
    end_all_but(lab, {})
    assert list(lab.pods.iterdir()) == []
