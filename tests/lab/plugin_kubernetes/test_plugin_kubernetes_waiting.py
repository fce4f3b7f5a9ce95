"""What the provider waits for, what it says meanwhile, and what is left when the wait fails."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from lab.plugins import values
from lab.plugins.kubernetes import cluster
from lab.plugins.kubernetes.awaiting import waiting
from tests.lab.held_clock import HeldClock
from tests.lab.plugin_kubernetes.conftest import Plane
from tests.lab.plugin_kubernetes.declared import NOWHERE, config_map, declare, named, workload
from tests.lab.provider_driver import Declared, Driver, FailedError

GO = '{"data":{"go":"yes"}}'


def of_workload(kind: str, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Declared:
    metadata = named(name, annotations=annotations or {})
    return declare(f"apps/v1:{kind}", name, {**metadata, "spec": {**workload(name), **spec}})


def service(name: str, **spec: Any) -> Declared:
    return declare("core/v1:Service", name, {**named(name), "spec": spec})


def test_workloads_become_ready(driver: Driver) -> None:
    program = (
        of_workload("Deployment", "web", replicas=2),
        of_workload("StatefulSet", "db", serviceName="db", replicas=2),
        of_workload("DaemonSet", "agent"),
        declare("core/v1:Pod", "one", {**named("one"), "spec": {"containers": [{"name": "c", "image": "nginx"}]}}),
        service("svc", selector={"app": "web"}, ports=[{"port": 80}]),
        service("headless", clusterIP="None", selector={"a": "b"}),
        service("bare", ports=[{"port": 80}]),
    )
    driver.up(*program)
    for name in ("web", "db"):
        assert driver.state[name].outputs["status"]["readyReplicas"] == 2
    assert driver.state["agent"].outputs["status"]["numberReady"] == 1
    driver.unchanged(*program)
    driver.refresh()
    driver.unchanged(*program)


def test_a_deployment_that_does_not_come_up_says_why_and_is_kept(
    driver: Driver, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(**pod: Any) -> Declared:
        spec = workload("stuck", **pod)
        return declare("apps/v1:Deployment", "stuck", {**named("stuck"), "spec": spec}, timeouts={"create": 4})

    def is_unschedulable() -> bool:
        has_seen_status = any("waiting for the rollout: " in line for line in driver.log.lines)
        return has_seen_status and "Unschedulable" in plane.kubectl("get", "pods", "-l", "app=stuck", "-o", "json")

    with monkeypatch.context() as patched, pytest.raises(FailedError) as failed:
        patched.setattr(waiting, "time", HeldClock(is_unschedulable))
        driver.up(stuck(**NOWHERE))
    message = str(failed.value)
    assert "created Deployment default/stuck, which is not ready: timed out after 4 s" in message
    assert "[Unschedulable]" in message
    assert "didn't match Pod's node affinity/selector" in message
    assert driver.state["stuck"].id == "default/stuck"
    assert driver.state["stuck"].init_errors
    assert "deployment.apps/stuck" in plane.names("deployment")
    assert driver.up(stuck())["stuck"].op == "update", "the next update goes on with the object that is there"
    driver.unchanged(stuck())


def test_a_wait_that_failed_is_taken_up_again_without_a_change(driver: Driver, plane: Plane) -> None:
    wait = {"pulumi.com/waitFor": "jsonpath={.data.go}=yes", "pulumi.com/timeoutSeconds": "2"}
    program = config_map("w", {"k": "v"}, annotations=wait)
    with pytest.raises(FailedError, match=r"\{\.data\.go\} selected nothing"):
        driver.up(program)
    assert driver.state["w"].init_errors
    # As a controller: the update takes over what kubectl has set, and removes it.
    plane.kubectl("patch", "configmap", "w", "--field-manager=controller", "--type=merge", "-p", GO)
    driver.up(program)
    assert not driver.state["w"].init_errors


def test_wait_for_a_condition_of_a_custom_object(driver: Driver, plane: Plane) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x_kubernetes_preserve_unknown_fields": True}}
    kind = {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"kind": "Gadget", "plural": "gadgets"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    wait = {"pulumi.com/waitFor": '["condition=Ready", "jsonpath={.status.url}"]'}
    program = (
        declare(
            "apiextensions.k8s.io/v1:CustomResourceDefinition",
            "crd",
            {"metadata": {"name": "gadgets.example.org"}, "spec": kind},
        ),
        declare("example.org/v1:Gadget", "gadget", {**named("gadget", annotations=wait), "spec": {"size": 1}}),
    )
    over = threading.Event()

    def make_ready() -> None:
        status = '{"status": {"url": "x", "conditions": [{"type": "Ready", "status": "True"}]}}'
        while not over.wait(0.5):
            # Until the object is there; afterwards it changes nothing.
            with contextlib.suppress(AssertionError):
                plane.kubectl("patch", "gadgets.example.org", "gadget", "--type=merge", "-p", status)

    with ThreadPoolExecutor() as pool:
        pool.submit(make_ready)
        try:
            driver.up(*program)
        finally:
            over.set()
    assert driver.state["gadget"].outputs["status"]["url"] == "x"
    driver.unchanged(*program)


def test_skip_await_and_the_annotation_for_time(driver: Driver) -> None:
    spec = workload("hurry", **NOWHERE)
    driver.up(of_workload("Deployment", "hurry", annotations={"pulumi.com/skipAwait": "true"}, **spec))
    spec = workload("t", **NOWHERE)
    with pytest.raises(FailedError, match="after 2 s"):
        driver.up(of_workload("Deployment", "t", annotations={"pulumi.com/timeoutSeconds": "2"}, **spec))


def test_jobs_succeed_or_fail(driver: Driver) -> None:
    def task(deadline_s: int, **pod: Any) -> Declared:
        containers = [{"name": "c", "image": "nginx"}]
        template = {"spec": {"restartPolicy": "Never", "containers": containers, **pod}}
        spec = {"template": template, "activeDeadlineSeconds": deadline_s}
        return declare("batch/v1:Job", "task", {**named("task"), "spec": spec})

    driver.up(task(600))
    assert driver.state["task"].outputs["status"]["succeeded"] == 1
    driver.unchanged(task(600))
    with pytest.raises(FailedError, match=r"\[DeadlineExceeded\] Job was active longer than specified deadline"):
        driver.up(task(3, **NOWHERE))
    assert driver.state["task"].init_errors


def test_claims_wait_to_be_bound_unless_their_class_says_otherwise(driver: Driver, plane: Plane) -> None:
    def claim(name: str, storage_class: str) -> Declared:
        asked = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {**asked, "storageClassName": storage_class}
        return declare("core/v1:PersistentVolumeClaim", name, {**named(name), "spec": spec})

    volume = {
        "capacity": {"storage": "1024Mi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "manual",
        "hostPath": {"path": "/x"},
    }
    lazy = {"provisioner": "x.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    program = (
        declare("storage.k8s.io/v1:StorageClass", "lazy", {"metadata": {"name": "lazy"}, **lazy}),
        claim("later", "lazy"),
        declare("core/v1:PersistentVolume", "pv", {"metadata": {"name": "pv-1"}, "spec": volume}),
        claim("now", "manual"),
    )
    driver.up(*program)
    assert driver.state["now"].outputs["status"]["phase"] == "Bound"
    assert driver.state["later"].outputs["status"]["phase"] == "Pending"
    driver.unchanged(*program)
    driver.destroy()
    assert plane.names("pvc") == []


def test_a_load_balancer_waits_for_its_address(driver: Driver, plane: Plane) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    program = declare("core/v1:Service", "lb", {**named("lb"), "spec": spec}, timeouts={"create": 2})
    with pytest.raises(FailedError, match="the Service got no load balancer address"):
        driver.up(program)
    status = '{"status": {"loadBalancer": {"ingress": [{"ip": "198.18.0.1"}]}}}'
    plane.kubectl("patch", "service", "lb", "--subresource=status", "--type=merge", "-p", status)
    driver.up(program)
    ingress = driver.state["lb"].outputs["status"]["loadBalancer"]["ingress"]
    assert ingress == [{"ip": "198.18.0.1", "ipMode": "VIP"}]


def test_the_api_server_may_go_away_for_a_while(driver: Driver, plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may need longer to start a server than the provider waits for one.
    monkeypatch.setattr(cluster, "time", HeldClock(lambda: False))
    program = config_map("outage", {"k": "v"})
    request = provider_pb2.CreateRequest(urn=program.urn, properties=values.to_struct(program.inputs))
    with driver.provider() as stub, ThreadPoolExecutor() as pool:
        plane.kill("kube-apiserver")
        making = pool.submit(stub.Create, request)
        # It is refused meanwhile; how often does not matter.
        time.sleep(2)
        assert not making.done()
        plane.kwokctl("start", "cluster", "--wait", "180s")
        assert making.result().id == "default/outage"
    plane.kubectl("delete", "configmap", "outage")


def test_an_unreachable_cluster_is_said_so(
    driver: Driver, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.up(config_map("un", {"k": "v"}))
    wrong = tmp_path / "kubeconfig"
    wrong.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(wrong))
    with pytest.raises(FailedError, match="cannot refresh default/un: the cluster is unreachable"):
        driver.refresh()
    with pytest.raises(FailedError, match="cannot delete default/un: the cluster is unreachable"):
        driver.destroy()
    driver.settings["deleteUnreachable"] = "true"
    driver.refresh()
    assert driver.state == {}
    plane.kubectl("delete", "configmap", "un")
