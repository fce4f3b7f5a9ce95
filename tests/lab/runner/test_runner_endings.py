"""How pods end, and what outlives the runner or the API server."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from kubernetes import client

from lab.paths import Lab
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
from tests.lab.waiting import PATIENCE_S, eventually


def test_stream_ends_before_the_pod_does(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >/proc/1/fd/1; sleep 1"]}}}
    container, volumes = web(lifecycle=hook)
    run_pod(core, namespace, "web", container, volumes=volumes)
    address = wait_ready(core, namespace, "web").status.pod_ip
    connection = http.client.HTTPConnection(address, 8000, timeout=PATIENCE_S)
    connection.request("GET", "/stream")
    response = connection.getresponse()
    core.delete_namespaced_pod("web", namespace)
    assert [int(line) for line in response.read().split()] == list(range(12))
    wait_gone(core, namespace, "web")
    lines = log_of(bare_lab, namespace, "web").splitlines()
    assert lines.index("hook") < lines.index("ended") == len(lines) - 1


def test_the_end_of_a_stream_arrives_although_its_packets_were_lost_at_first(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    container, volumes = web()
    run_pod(core, namespace, "web", container, volumes=volumes)
    pod = wait_ready(core, namespace, "web")
    network = f"{bare_lab.prefix}-p-{pod.metadata.uid[:8]}"
    connection = http.client.HTTPConnection(pod.status.pod_ip, 8000, timeout=30)
    connection.request("GET", "/stream")
    response = connection.getresponse()
    core.delete_namespaced_pod("web", namespace)
    early = [int(response.readline()) for _ in range(4)]
    subprocess.run(["ip", "-n", bare_lab.namespace, "link", "set", network, "down"], check=True)
    eventually(lambda: not subprocess.check_output(["ip", "netns", "pids", network]))
    # Time for a runner that does not wait.
    time.sleep(0.3)
    subprocess.run(["ip", "-n", bare_lab.namespace, "link", "set", network, "up"], check=True)
    assert [*early, *map(int, response.read().split())] == list(range(12))


def test_second_delete_shortens_the_grace(core: client.CoreV1Api, namespace: str) -> None:
    deaf = python("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)")
    run_pod(core, namespace, "deaf", deaf, terminationGracePeriodSeconds=300)
    wait_ready(core, namespace, "deaf")
    core.delete_namespaced_pod("deaf", namespace)
    time.sleep(0.5)
    core.delete_namespaced_pod("deaf", namespace, grace_period_seconds=1)
    wait_gone(core, namespace, "deaf")


def test_runner_that_must_end_ends_its_pods_and_its_successor_starts_them_again(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    container, volumes = web(securityContext={"runAsUser": 1234})
    run_pod(core, namespace, "web", container, volumes=volumes)
    before = wait_ready(core, namespace, "web")
    os.kill(component_pid(bare_lab, "pod-runner"), signal.SIGTERM)

    def again() -> Any:
        pod = read(core, namespace, "web")
        return pod if pod.status.container_statuses[0].restart_count == 1 and is_ready(pod) else None

    after = eventually(again)
    assert after.metadata.uid == before.metadata.uid
    assert get(after.status.pod_ip)["secret"] == "first"
    name = f"{bare_lab.prefix}-p-{after.metadata.uid[:8]}"
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout.split()
    # bubblewrap and the program; the first run's program is gone.
    assert len(listed) == 2


def test_api_server_may_be_away(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    container, volumes = web()
    run_pod(core, namespace, "web", container, volumes=volumes)
    address = wait_ready(core, namespace, "web").status.pod_ip
    os.kill(component_pid(bare_lab, "kube-apiserver"), signal.SIGKILL)
    assert get(address)["secret"] == "first"
    eventually(lambda: read(core, namespace, "web"))
    # The server answers reads before it accepts writes.
    eventually(lambda: core.patch_namespaced_secret("secret", namespace, {"stringData": {"key": "later"}}))
    eventually(lambda: get(address)["secret"] == "later")
    assert main_status(core, namespace, "web").restart_count == 0


def test_nothing_is_left_of_deleted_pods(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    run_pod(core, namespace, "short", python("import time; time.sleep(600)"), terminationGracePeriodSeconds=1)
    uid = wait_ready(core, namespace, "short").metadata.uid
    name = f"{bare_lab.prefix}-p-{uid[:8]}"
    assert Path("/run/netns", name).exists()
    core.delete_namespaced_pod("short", namespace)
    wait_gone(core, namespace, "short")
    assert not Path("/run/netns", name).exists()
    assert not (bare_lab.pods / uid).exists()
    assert str(bare_lab.pods) not in Path("/proc/self/mountinfo").read_text()
