from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lab.cluster import network, processes
from lab.cluster.component import Component
from lab.paths import Lab
from lab.site import guard, supervisor
from lab.site.supervisor import Watched


@pytest.fixture
def home(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path, cache=tmp_path / "cache", index=6)


def component(lab: Lab, program: str, *, needs: Path | None = None) -> Component:
    return Component(
        name="sample",
        argv=(sys.executable, "-c", program),
        folder=lab.home,
        pid_file=lab.home / "sample.pid",
        log_file=lab.home / "sample.log",
        needs=needs,
    )


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ends(entry: Watched, now: float) -> None:
    """Kill it and have the supervisor notice at this time."""
    assert entry.child is not None
    entry.child.kill()
    entry.child.wait()
    entry.look(now)


def test_ended_component_is_started_again_after_a_growing_delay(home: Lab) -> None:
    entry = Watched(component=component(home, "import time; time.sleep(60)"))
    delays = []
    now = 100.0
    for _ in range(7):
        entry.start_if_due(home, now)
        assert entry.pid is not None
        ends(entry, now)
        delays.append(entry.not_before - now)
        entry.start_if_due(home, entry.not_before - 0.01)
        assert entry.pid is None, "started before its delay was over"
        now = entry.not_before
    assert delays == [0.5, 1, 2, 4, 8, 10, 10]
    assert entry.restarts == 7
    assert entry.last_exit == -9


def test_component_that_ran_for_long_comes_back_at_once(home: Lab) -> None:
    entry = Watched(component=component(home, "import time; time.sleep(60)"), backoff_s=8)
    entry.start_if_due(home, 0.0)
    ends(entry, 1000.0)
    assert entry.not_before == 1000.0
    assert entry.backoff_s == 0.5


def test_component_waits_for_the_file_that_it_needs(home: Lab) -> None:
    needed = home.home / "credentials"
    entry = Watched(component=component(home, "pass", needs=needed))
    entry.start_if_due(home, 0.0)
    assert (entry.pid, entry.state) == (None, "waits for credentials")
    needed.touch()
    entry.start_if_due(home, 0.0)
    assert entry.child is not None
    entry.child.wait()


def test_component_ends_when_its_file_goes_and_comes_back_with_it(home: Lab) -> None:
    needed = home.home / "control-plane-machine"
    needed.touch()
    entry = Watched(component=component(home, "import time; time.sleep(60)", needs=needed))
    entry.start_if_due(home, 0.0)
    entry.stop_if_unwanted(1.0)
    assert entry.state == "running"
    needed.unlink()
    entry.stop_if_unwanted(2.0)
    assert entry.state == "stopping"
    assert entry.child is not None
    entry.child.wait()
    # Wanted again at once: it is not a failure, so there is no delay and it counts as no restart.
    needed.touch()
    entry.look(3.0)
    assert (entry.pid, entry.restarts) == (None, 0)
    entry.start_if_due(home, 3.0)
    assert entry.pid is not None
    ends(entry, 4.0)


def test_component_that_does_not_end_when_asked_is_killed(home: Lab) -> None:
    needed = home.home / "control-plane-machine"
    needed.touch()
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    entry = Watched(component=component(home, program, needs=needed))
    entry.start_if_due(home, 0.0)
    until(lambda: "up" in entry.component.log_file.read_text())
    needed.unlink()
    entry.stop_if_unwanted(0.0)
    entry.stop_if_unwanted(supervisor.grace_s("sample"))
    assert entry.child is not None
    assert entry.child.poll() is None
    entry.stop_if_unwanted(supervisor.grace_s("sample") + 0.1)
    assert entry.child.wait() == -9


def test_a_control_plane_that_is_created_later_is_watched_and_the_others_stay(home: Lab) -> None:
    machines, etcd = component(home, "machines"), replace(component(home, "etcd"), name="etcd")
    first = supervisor.renewed([], [machines])
    both = supervisor.renewed(first, [etcd, machines])
    assert [entry.component for entry in both] == [etcd, machines]
    assert both[1] is first[0]


def test_machines_run_before_there_is_a_cluster(home: Lab) -> None:
    names = [component.name for component in supervisor.components(home)]
    assert names == ["machines", "emulated-hub", "kube-proxy", "assigner", "pod-runner", "guard"]


def test_modules_that_are_started_by_name_exist(home: Lab) -> None:
    """No import shows these names, so a module that moves would take its process along unnoticed."""
    commands = [part.argv for part in supervisor.components(home) if part.argv[0] == sys.executable]
    modules = [guard._SUPERVISOR, *(argv[argv.index("-m") + 1] for argv in commands)]
    assert len(modules) == 6
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_program_that_is_missing_does_not_end_the_supervisor(home: Lab) -> None:
    missing = replace(component(home, "pass"), argv=(str(home.home / "absent"),))
    entry = Watched(component=missing)
    entry.start_if_due(home, 5.0)
    assert (entry.pid, entry.not_before) == (None, 5.5)


def test_running_component_of_an_earlier_supervisor_is_taken_over(home: Lab) -> None:
    sample = component(home, "import time; time.sleep(60)")
    child = sample.start(home)
    try:
        later = Watched(component=sample)
        later.look(0.0)
        later.start_if_due(home, 0.0)
        assert (later.pid, later.starts, later.state) == (child.pid, 0, "running")
    finally:
        child.kill()
        child.wait()


def test_reused_process_id_is_not_taken_for_the_component(home: Lab) -> None:
    sample = component(home, "pass")
    sample.pid_file.write_text(str(os.getpid()))
    assert sample.pid() is None


def test_zombie_does_not_count_as_running(home: Lab) -> None:
    child = component(home, "pass").start(home)
    until(lambda: not processes.is_alive(child.pid))
    assert psutil.pid_exists(child.pid), "it was reaped, so this shows nothing"
    child.wait()


def test_mark_of_a_process_in_the_users_own_network_is_not_the_labs(home: Lab) -> None:
    child = component(home, "import time; time.sleep(60)").start(home)
    try:
        assert child.pid not in processes.marked(network.MARK, network.mark(home))
    finally:
        child.kill()
        child.wait()


def test_component_gets_the_labs_mark_and_coordinates(home: Lab) -> None:
    program = "import os; print(*(os.environ[n] for n in ('INFERENCE_LAB', 'LAB_HOME', 'LAB_INDEX')))"
    sample = component(home, program)
    sample.start(home).wait()
    assert sample.log_file.read_text() == f"{network.mark(home)} {home.home} 6\n"


def test_control_plane_starts_first_and_etcd_stops_last() -> None:
    # A guard that still ran would bring the supervisor back that stops everything.
    assert supervisor._STOP_ORDER[:2] == ("guard", "pod-runner")
    assert supervisor._STOP_ORDER[-2:] == ("kube-apiserver", "etcd")


def test_status_of_a_dead_supervisor_names_no_process(home: Lab) -> None:
    guard.status_file(home).write_text(json.dumps({"supervisor": os.getpid(), "components": {}}))
    assert guard.pid(home) is None


def test_broken_status_file_counts_as_none(home: Lab) -> None:
    guard.status_file(home).write_text("{")
    assert guard.read_status(home) == {}
