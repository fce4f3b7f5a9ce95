"""Pods that the runner really executes, in a bare lab of their own."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from urllib3.exceptions import HTTPError

from lab.cluster import api, down, up
from lab.paths import Lab

INDEX = 6
SERVER = textwrap.dedent(
    """
    import http.server, json, os, signal, threading, time

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if self.path == "/stream":
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                for number in range(12):
                    self.wfile.write(b"%d\\n" % number)
                    time.sleep(0.25)
                self.close_connection = True
                return
            body = json.dumps(
                {"env": dict(os.environ), "secret": open("/secret/key").read(), "uid": os.getuid(), "pid": os.getpid()}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("", 8000), Handler)
    server.daemon_threads = False
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("serving", flush=True)
    server.serve_forever()
    server.server_close()
    print("ended", flush=True)
    """
)
_SERIAL = itertools.count(1)
Container = dict[str, Any]


@pytest.fixture(scope="module")
def bare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = replace(Lab.from_environment(), home=tmp_path_factory.mktemp("runner"), index=INDEX)
    lab.bin.symlink_to(Lab.from_environment().bin)
    up.bring_up(lab, hgx=0, controllers=False)
    yield lab
    down.take_down(lab)
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"{lab.prefix}-" not in left


@pytest.fixture
def core(bare_lab: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(bare_lab) as connection:
        yield client.CoreV1Api(connection)


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    name = f"runner-{next(_SERIAL)}"
    core.create_namespace({"metadata": {"name": name}})
    eventually(lambda: [a for a in core.list_namespaced_service_account(name).items if a.metadata.name == "default"])
    core.create_namespaced_secret(name, {"metadata": {"name": "secret"}, "stringData": {"key": "first"}})
    core.create_namespaced_config_map(name, {"metadata": {"name": "code"}, "data": {"server.py": SERVER}})
    yield name
    core.delete_namespace(name)


def eventually(holds: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Wait for something truthy and return it; errors of a server that is away count as not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        with suppress(client.ApiException, OSError, LookupError, HTTPError):
            if result := holds():
                return result
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.1)


def run_pod(core: client.CoreV1Api, namespace: str, name: str, *containers: Container, **spec: Any) -> None:
    for container in (*containers, *spec.get("initContainers", [])):
        container.setdefault("image", "python:3.11")
        container.setdefault("name", "main")
    manifest = {"metadata": {"name": name}, "spec": {"containers": list(containers), **spec}}
    core.create_namespaced_pod(namespace, manifest)


def python(code: str, **fields: Any) -> Container:
    return {"command": ["python3", "-u", "-c", textwrap.dedent(code)], **fields}


def web(**fields: Any) -> tuple[Container, list[Container]]:
    """A container that serves HTTP on 8000, and the volumes it mounts."""
    container = {
        "command": ["python3", "-u", "/code/server.py"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "secret", "mountPath": "/secret"}],
        **fields,
    }
    volumes = [{"name": "code", "configMap": {"name": "code"}}, {"name": "secret", "secret": {"secretName": "secret"}}]
    return container, volumes


def read(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    return core.read_namespaced_pod(name, namespace)


def wait_phase(core: client.CoreV1Api, namespace: str, name: str, phase: str) -> Any:
    def reached() -> Any:
        pod = read(core, namespace, name)
        return pod if pod.status.phase == phase else None

    return eventually(reached)


def main_status(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    """Status of the pod's first container; LookupError while there is none."""
    return (read(core, namespace, name).status.container_statuses or [])[0]


def is_ready(pod: Any) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or [])


def wait_ready(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    def ready() -> Any:
        pod = read(core, namespace, name)
        return pod if is_ready(pod) else None

    return eventually(ready)


def wait_gone(core: client.CoreV1Api, namespace: str, name: str) -> None:
    def gone() -> bool:
        try:
            read(core, namespace, name)
        except client.ApiException as error:
            return bool(error.status == 404)
        return False

    eventually(gone)


def get(address: str, path: str = "/") -> Any:
    connection = http.client.HTTPConnection(address, 8000, timeout=10)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def log_of(lab: Lab, namespace: str, pod: str, container: str = "main", run: int = 0) -> str:
    folder = next((lab.logs / "pods").glob(f"{namespace}_{pod}_*"))
    return (folder / container / f"{run}.log").read_text()


def component_pid(lab: Lab, name: str) -> int:
    return int(json.loads((lab.home / "status.json").read_text())["components"][name]["pid"])


def test_web_pod_serves_host_and_other_pods(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    environment = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(POD_IP):8000"},
    ]
    security = {"runAsUser": 1234, "readOnlyRootFilesystem": True}
    container, volumes = web(env=environment, securityContext=security)
    run_pod(core, namespace, "web", container, volumes=volumes)
    pod = wait_ready(core, namespace, "web")
    seen = get(pod.status.pod_ip)
    assert seen["env"]["URL"] == f"http://{pod.status.pod_ip}:8000"
    assert (seen["uid"], seen["pid"], seen["secret"]) == (1234, 1, "first")
    assert pod.status.phase == "Running"
    assert pod.status.host_ip == str(bare_lab.network.node_address(0))
    assert {c.type for c in pod.status.conditions} >= {"PodScheduled", "Initialized", "ContainersReady", "Ready"}

    core.create_namespaced_service(
        namespace,
        {
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
        },
    )
    core.patch_namespaced_pod("web", namespace, {"metadata": {"labels": {"app": "web"}}})
    asking = f"""
        import time, urllib.request
        for _ in range(50):
            try:
                print(urllib.request.urlopen("http://web.{namespace}.svc", timeout=2).status)
                break
            except OSError as error:
                print(error)
                time.sleep(0.2)
    """
    run_pod(core, namespace, "client", python(asking), restartPolicy="Never")
    wait_phase(core, namespace, "client", "Succeeded")
    assert log_of(bare_lab, namespace, "client").splitlines()[-1] == "200"


def test_changed_secret_reaches_the_file(core: client.CoreV1Api, namespace: str) -> None:
    container, volumes = web()
    run_pod(core, namespace, "web", container, volumes=volumes)
    address = wait_ready(core, namespace, "web").status.pod_ip
    assert get(address)["secret"] == "first"
    core.patch_namespaced_secret("secret", namespace, {"stringData": {"key": "second"}})
    eventually(lambda: get(address)["secret"] == "second", timeout_s=5)


def test_pod_waits_for_a_missing_secret(core: client.CoreV1Api, namespace: str) -> None:
    volumes = [{"name": "late", "secret": {"secretName": "late"}}]
    mounts = [{"name": "late", "mountPath": "/late"}]
    run_pod(core, namespace, "waits", python("print(open('/late/a').read())", volumeMounts=mounts), volumes=volumes)
    eventually(lambda: "FailedMount" in {event.reason for event in core.list_namespaced_event(namespace).items})
    assert read(core, namespace, "waits").status.phase == "Pending"
    core.create_namespaced_secret(namespace, {"metadata": {"name": "late"}, "stringData": {"a": "b"}})
    eventually(lambda: main_status(core, namespace, "waits").state.waiting is None)


def test_init_containers_and_sidecar_run_in_order(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    mounts = [{"name": "notes", "mountPath": "/notes"}]

    def note(word: str) -> str:
        return f"open('/notes/log', 'a').write('{word} ')\n"

    waits = "import signal, sys, time\nsignal.signal(15, {0})\nwhile True: time.sleep(1)\n"
    sidecar_end = (
        "lambda *_: (open('/notes/log', 'a').write('sidecar-end '), print(open('/notes/log').read()), sys.exit(0))"
    )
    main_end = "lambda *_: (time.sleep(0.5), open('/notes/log', 'a').write('main-end '), sys.exit(0))"
    inits = [
        python("import time; time.sleep(0.5)\n" + note("first"), name="first", volumeMounts=mounts),
        python(
            "import time\ntime.sleep(0.5)\n" + note("sidecar") + waits.format(sidecar_end),
            name="sidecar",
            volumeMounts=mounts,
            restartPolicy="Always",
            startupProbe={"exec": {"command": ["grep", "-q", "sidecar", "/notes/log"]}, "periodSeconds": 1},
        ),
        python(note("last"), name="last", volumeMounts=mounts),
    ]
    run_pod(
        core,
        namespace,
        "order",
        python(note("main") + waits.format(main_end), volumeMounts=mounts),
        initContainers=inits,
        volumes=[{"name": "notes", "emptyDir": {}}],
    )
    wait_ready(core, namespace, "order")
    time.sleep(0.5)
    core.delete_namespaced_pod("order", namespace)
    wait_gone(core, namespace, "order")
    assert log_of(bare_lab, namespace, "order", "sidecar").split() == [
        *("first", "sidecar", "last", "main", "main-end", "sidecar-end")
    ]


def test_crashing_container_backs_off(core: client.CoreV1Api, namespace: str) -> None:
    crash = python("import sys; print('no luck'); sys.exit(7)", terminationMessagePolicy="FallbackToLogsOnError")
    run_pod(core, namespace, "crash", crash)

    def backing_off() -> Any:
        status = main_status(core, namespace, "crash")
        waiting = status.state.waiting
        return status if waiting and waiting.reason == "CrashLoopBackOff" and status.restart_count >= 2 else None

    status = eventually(backing_off)
    assert status.last_state.terminated.exit_code == 7
    assert status.last_state.terminated.message == "no luck"
    assert not status.ready


def test_failing_liveness_restarts_the_container(core: client.CoreV1Api, namespace: str) -> None:
    probe = {"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 1}
    sleeps = python("import time; time.sleep(600)", livenessProbe=probe)
    run_pod(core, namespace, "stuck", sleeps, terminationGracePeriodSeconds=1)
    status = eventually(
        lambda: main_status(core, namespace, "stuck") if main_status(core, namespace, "stuck").restart_count else None
    )
    # The program is PID 1 and does not handle SIGTERM, so the kernel keeps it until SIGKILL, as in a container.
    assert status.last_state.terminated.exit_code == 137


def test_stream_ends_before_the_pod_does(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >/proc/1/fd/1; sleep 1"]}}}
    container, volumes = web(lifecycle=hook)
    run_pod(core, namespace, "web", container, volumes=volumes)
    address = wait_ready(core, namespace, "web").status.pod_ip
    connection = http.client.HTTPConnection(address, 8000, timeout=20)
    connection.request("GET", "/stream")
    response = connection.getresponse()
    core.delete_namespaced_pod("web", namespace)
    assert [int(line) for line in response.read().split()] == list(range(12))
    wait_gone(core, namespace, "web")
    lines = log_of(bare_lab, namespace, "web").splitlines()
    assert lines.index("hook") < lines.index("ended") == len(lines) - 1


def test_second_delete_shortens_the_grace(core: client.CoreV1Api, namespace: str) -> None:
    deaf = python("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)")
    run_pod(core, namespace, "deaf", deaf, terminationGracePeriodSeconds=300)
    wait_ready(core, namespace, "deaf")
    core.delete_namespaced_pod("deaf", namespace)
    time.sleep(0.5)
    core.delete_namespaced_pod("deaf", namespace, grace_period_seconds=1)
    wait_gone(core, namespace, "deaf")


def test_projected_token_is_accepted(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    asks = """
        import json, ssl, urllib.request
        account = "/var/run/secrets/kubernetes.io/serviceaccount"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        request = urllib.request.Request(
            "https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews",
            data=json.dumps(review).encode(),
            headers={"Authorization": "Bearer " + open(account + "/token").read(), "Content-Type": "application/json"},
        )
        trust = ssl.create_default_context(cafile=account + "/ca.crt")
        answer = json.load(urllib.request.urlopen(request, context=trust, timeout=5))
        print(answer["status"]["userInfo"]["username"])
    """
    run_pod(core, namespace, "asks", python(asks), restartPolicy="OnFailure")
    wait_phase(core, namespace, "asks", "Succeeded")
    last = max(s.restart_count for s in read(core, namespace, "asks").status.container_statuses)
    assert log_of(bare_lab, namespace, "asks", run=last).strip() == f"system:serviceaccount:{namespace}:default"


def test_job_completes_and_failing_job_fails(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    with api.connect(bare_lab) as connection:
        jobs = client.BatchV1Api(connection)
        for name, code in (("good", 0), ("bad", 3)):
            container = python(f"raise SystemExit({code})", name="main", image="python")
            template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
            jobs.create_namespaced_job(
                namespace, {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}
            )
        eventually(lambda: jobs.read_namespaced_job("good", namespace).status.succeeded == 1)
        eventually(lambda: jobs.read_namespaced_job("bad", namespace).status.failed == 1)
    pods = core.list_namespaced_pod(namespace, label_selector="job-name=bad").items
    assert pods[0].status.phase == "Failed"
    assert pods[0].status.container_statuses[0].state.terminated.exit_code == 3


def test_claim_is_shared_and_read_only_holds(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim(namespace, {"metadata": {"name": "weights"}, "spec": claim})

    def volume(read_only: bool) -> list[dict[str, Any]]:
        return [{"name": "w", "persistentVolumeClaim": {"claimName": "weights", "readOnly": read_only}}]

    mounts = [{"name": "w", "mountPath": "/w"}]
    writes = python("open('/w/file', 'w').write('bytes')", volumeMounts=mounts)
    run_pod(core, namespace, "writes", writes, volumes=volume(False), restartPolicy="Never")
    wait_phase(core, namespace, "writes", "Succeeded")
    reads = python(
        """
        print(open('/w/file').read())
        try:
            open('/w/other', 'w')
        except OSError as error:
            print(error.strerror)
        """,
        volumeMounts=mounts,
    )
    run_pod(core, namespace, "reads", reads, volumes=volume(True), restartPolicy="Never")
    wait_phase(core, namespace, "reads", "Succeeded")
    assert log_of(bare_lab, namespace, "reads").splitlines() == ["bytes", "Read-only file system"]


def test_what_the_lab_cannot_do_is_said(core: client.CoreV1Api, namespace: str) -> None:
    run_pod(core, namespace, "unknown", {"image": "example.com/vendor/thing:1"})
    host = [{"name": "etc", "hostPath": {"path": "/etc"}}]
    run_pod(core, namespace, "host", python("pass"), volumes=host)
    status = eventually(lambda: main_status(core, namespace, "unknown"))
    eventually(lambda: main_status(core, namespace, "unknown").state.waiting.reason == "ErrImagePull")
    status = read(core, namespace, "unknown").status
    assert "lab/runner/images.py" in status.container_statuses[0].state.waiting.message
    assert status.phase == "Pending"
    words = eventually(
        lambda: [e.message for e in core.list_namespaced_event(namespace).items if e.reason == "FailedMount"]
    )
    assert "hostPath /etc is refused" in words[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_runner_restart_starts_pods_again(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str, number: signal.Signals
) -> None:
    container, volumes = web(securityContext={"runAsUser": 1234})
    run_pod(core, namespace, "web", container, volumes=volumes)
    before = wait_ready(core, namespace, "web")
    os.kill(component_pid(bare_lab, "pod-runner"), number)

    def again() -> Any:
        pod = read(core, namespace, "web")
        return pod if pod.status.container_statuses[0].restart_count == 1 and is_ready(pod) else None

    after = eventually(again, timeout_s=30)
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
    eventually(lambda: read(core, namespace, "web"), timeout_s=30)
    core.patch_namespaced_secret("secret", namespace, {"stringData": {"key": "later"}})
    eventually(lambda: get(address)["secret"] == "later", timeout_s=30)
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
