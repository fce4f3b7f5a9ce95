"""What becomes of pods when their runner, or the supervisor above it, is killed: nothing."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes import client

from lab.cluster import processes
from lab.paths import Lab
from lab.runner.records import Records, recorded
from lab.site import guard
from tests.lab.runner.pods import (
    component_pid,
    get,
    is_ready,
    log_of,
    main_status,
    python,
    read,
    run_pod,
    wait_gone,
    wait_ready,
    web,
)
from tests.lab.waiting import eventually


def kill_runner(lab: Lab) -> None:
    """And wait for its successor to follow the pods."""
    _kill_and_wait_for_a_runner(lab, component_pid(lab, "pod-runner"))


def kill_supervisor(lab: Lab) -> None:
    killed = eventually(lambda: guard.pid(lab))
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: guard.pid(lab) not in {None, killed})


def kill_both(lab: Lab) -> None:
    # The runner's pid is unknown between two supervisors.
    runner = component_pid(lab, "pod-runner")
    _kill_and_wait_for_a_runner(lab, eventually(lambda: guard.pid(lab)), runner)


def _kill_and_wait_for_a_runner(lab: Lab, *pids: int) -> None:
    log = lab.logs / "pod-runner.log"
    before = log.read_text().count("lab pod runner is ready")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: log.read_text().count("lab pod runner is ready") > before)


def program_pid(lab: Lab, uid: str) -> int:
    """The pod's program, as this machine knows it."""
    pid = recorded(Records(lab.pods / uid).status_file("main"), "child-pid")
    assert pid is not None
    assert processes.is_alive(pid)
    return pid


@pytest.mark.parametrize("kill", [kill_runner, kill_supervisor, kill_both])
def test_pods_and_their_streams_go_on(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str, kill: Callable[[Lab], None]
) -> None:
    container, volumes = web(securityContext={"runAsUser": 1234})
    run_pod(core, namespace, "web", container, volumes=volumes)
    before = wait_ready(core, namespace, "web")
    address = before.status.pod_ip
    pid = program_pid(bare_lab, before.metadata.uid)
    connection = http.client.HTTPConnection(address, 8000, timeout=20)
    connection.request("GET", "/stream")
    response = connection.getresponse()
    kill(bare_lab)
    assert [int(line) for line in response.read().split()] == list(range(12))
    after = read(core, namespace, "web")
    assert program_pid(bare_lab, before.metadata.uid) == pid
    assert (after.status.pod_ip, after.status.container_statuses[0].restart_count) == (address, 0)
    ready = {c.type: c.last_transition_time for c in before.status.conditions}["Ready"]
    # Not for a moment was it taken out of its Services.
    assert {c.type: c.last_transition_time for c in after.status.conditions}["Ready"] == ready
    assert is_ready(after)

    # The successor looks after it as the first one did: its files, its log, its end.
    core.patch_namespaced_secret("secret", namespace, {"stringData": {"key": "later"}})
    eventually(lambda: get(address)["secret"] == "later")
    core.delete_namespaced_pod("web", namespace)
    wait_gone(core, namespace, "web")
    assert log_of(bare_lab, namespace, "web").splitlines()[-1] == "ended"


def test_container_that_ends_later_is_started_again_and_keeps_its_empty_dir(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    runs = """
        import pathlib, time
        notes = pathlib.Path("/notes/runs")
        with notes.open("a") as file:
            file.write("run ")
        while not pathlib.Path("/notes/go").exists():
            time.sleep(0.1)
        pathlib.Path("/notes/go").unlink()
        raise SystemExit(9)
    """
    mounts = [{"name": "notes", "mountPath": "/notes"}]
    container = python(runs, volumeMounts=mounts)
    run_pod(core, namespace, "again", container, volumes=[{"name": "notes", "emptyDir": {}}])
    uid = wait_ready(core, namespace, "again").metadata.uid
    kill_runner(bare_lab)
    notes = bare_lab.pods / uid / "volumes" / "notes"
    (notes / "go").touch()
    status = eventually(lambda: (s := main_status(core, namespace, "again")).restart_count == 1 and s)
    assert status.last_state.terminated.exit_code == 9
    eventually(lambda: (notes / "runs").read_text() == "run run ")


def test_pod_that_was_deleted_while_no_runner_looked_ends_in_order(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    container, volumes = web()
    run_pod(core, namespace, "web", container, volumes=volumes)
    uid = wait_ready(core, namespace, "web").metadata.uid
    os.kill(component_pid(bare_lab, "pod-runner"), signal.SIGKILL)
    core.delete_namespaced_pod("web", namespace)
    wait_gone(core, namespace, "web")
    assert log_of(bare_lab, namespace, "web").splitlines()[-1] == "ended"
    assert not (bare_lab.pods / uid).exists()
    assert not Path("/run/netns", f"{bare_lab.prefix}-p-{uid[:8]}").exists()
