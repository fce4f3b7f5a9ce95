"""Pods that the runner really executes: network, volumes, order, probes, restarts."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from lab.cluster import api
from lab.cluster.parts import present, status_of
from lab.paths import Lab
from tests.lab.runner.pods import (
    get,
    log_of,
    main_status,
    python,
    read,
    run_pod,
    wait_gone,
    wait_phase,
    wait_ready,
    web,
)
from tests.lab.waiting import PATIENCE_S, eventually


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
    # No user of the machine has the id that it gets.
    assert (seen["uid"], seen["pid"], seen["secret"]) == (2_000_001_234, 1, "first")
    assert pod.status.phase == "Running"
    assert pod.status.host_ip == str(bare_lab.network.node_address(0))
    assert {c.type for c in pod.status.conditions} >= {"PodScheduled", "Initialized", "ContainersReady", "Ready"}

    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]}
    service = client.V1Service.model_validate({"metadata": {"name": "web"}, "spec": spec})
    core.create_namespaced_service(namespace, service)
    core.patch_namespaced_pod("web", namespace, {"metadata": {"labels": {"app": "web"}}})
    asking = f"""
        import time, urllib.request
        while True:
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
    eventually(lambda: get(address)["secret"] == "second")


def test_pod_waits_for_a_missing_secret(core: client.CoreV1Api, namespace: str) -> None:
    volumes = [{"name": "late", "secret": {"secretName": "late"}}]
    mounts = [{"name": "late", "mountPath": "/late"}]
    run_pod(core, namespace, "waits", python("print(open('/late/a').read())", volumeMounts=mounts), volumes=volumes)
    eventually(lambda: "FailedMount" in {event.reason for event in core.list_namespaced_event(namespace).items})
    assert read(core, namespace, "waits").status.phase == "Pending"
    secret = client.V1Secret.model_validate({"metadata": {"name": "late"}, "stringData": {"a": "b"}})
    core.create_namespaced_secret(namespace, secret)
    eventually(lambda: main_status(core, namespace, "waits").state.waiting is None)


def test_init_containers_and_sidecar_run_in_order(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    mounts = [{"name": "notes", "mountPath": "/notes"}]

    def note(word: str) -> str:
        return f"open('/notes/log', 'a').write('{word} ')\n"

    waits = "import signal, sys, time\nsignal.signal(15, {0})\n{1}while True: time.sleep(1)\n"
    sidecar_end = (
        "lambda *_: (open('/notes/log', 'a').write('sidecar-end '), print(open('/notes/log').read()), sys.exit(0))"
    )
    main_end = "lambda *_: (time.sleep(0.5), open('/notes/log', 'a').write('main-end '), sys.exit(0))"
    inits = [
        python("import time; time.sleep(0.5)\n" + note("first"), name="first", volumeMounts=mounts),
        python(
            "import time\ntime.sleep(0.5)\n" + waits.format(sidecar_end, note("sidecar")),
            name="sidecar",
            volumeMounts=mounts,
            restartPolicy="Always",
            startupProbe={
                "exec": {"command": ["grep", "-q", "sidecar", "/notes/log"]},
                "periodSeconds": 1,
                "timeoutSeconds": 30,
                "failureThreshold": PATIENCE_S,
            },
        ),
        python(note("last"), name="last", volumeMounts=mounts),
    ]
    run_pod(
        core,
        namespace,
        "order",
        python(waits.format(main_end, note("main")), volumeMounts=mounts),
        initContainers=inits,
        volumes=[{"name": "notes", "emptyDir": {}}],
    )
    notes = bare_lab.pods / wait_ready(core, namespace, "order").metadata.uid / "volumes" / "notes" / "log"
    # A program without a handler would not hear its end.
    eventually(lambda: "main" in notes.read_text())
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
            job = {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}
            jobs.create_namespaced_job(namespace, client.V1Job.model_validate(job))
        eventually(lambda: status_of(jobs.read_namespaced_job("good", namespace)).succeeded == 1)
        eventually(lambda: status_of(jobs.read_namespaced_job("bad", namespace)).failed == 1)
    status = status_of(core.list_namespaced_pod(namespace, label_selector="job-name=bad").items[0])
    assert status.phase == "Failed"
    ended = present(present(status.container_statuses)[0].state).terminated
    assert present(ended).exit_code == 3


def test_claim_is_shared_and_read_only_holds(bare_lab: Lab, core: client.CoreV1Api, namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    weights = client.V1PersistentVolumeClaim.model_validate({"metadata": {"name": "weights"}, "spec": claim})
    core.create_namespaced_persistent_volume_claim(namespace, weights)

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
