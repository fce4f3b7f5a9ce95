"""What the stand-in waits for, what it says meanwhile, and what is left when the wait fails."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.plugin_kubernetes.conftest import Plane, Site

WORKLOADS = """
def workload(name, image="nginx", **pod):
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": image}], **pod}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}

NOWHERE = {"nodeSelector": {"no": "where"}}
"""


def test_workloads_become_ready(site: Site) -> None:
    site.declare(
        WORKLOADS
        + """
web = declare("apps/v1:Deployment", "web", {**named("web"), "spec": {**workload("web"), "replicas": 2}})
declare("apps/v1:StatefulSet", "db", {**named("db"), "spec": {**workload("db"), "serviceName": "db", "replicas": 2}})
declare("apps/v1:DaemonSet", "agent", {**named("agent"), "spec": workload("agent")})
declare("core/v1:Pod", "one", {**named("one"), "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
declare("core/v1:Service", "svc", {**named("svc"), "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
        depends_on=[web])
declare("core/v1:Service", "headless", {**named("headless"), "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
declare("core/v1:Service", "bare", {**named("bare"), "spec": {"ports": [{"port": 80}]}})
"""
    )
    site.up()
    for name in ("web", "db"):
        assert site.state(name)["outputs"]["status"]["readyReplicas"] == 2
    assert site.state("agent")["outputs"]["status"]["numberReady"] == 1
    site.unchanged()
    site.pulumi("refresh", "--yes", "--expect-no-changes")


def test_a_deployment_that_does_not_come_up_says_why_and_is_kept(site: Site, plane: Plane) -> None:
    program = """
declare("apps/v1:Deployment", "stuck", {{**named("stuck"), "spec": workload("stuck"{})}},
        custom_timeouts=pulumi.CustomTimeouts(create="4s", update="60s"))
"""
    site.declare(WORKLOADS + program.format(", **NOWHERE"))
    said = site.up(check=False)
    assert "created Deployment default/stuck, which is not ready: timed out after 4 s" in said
    assert "[Unschedulable]" in said and "didn't match Pod's node affinity/selector" in said
    state = site.state("stuck")
    assert state["id"] == "default/stuck" and state["initErrors"]
    assert "deployment.apps/stuck" in plane.names("deployment")
    site.declare(WORKLOADS + program.format(""))
    said = site.up()
    assert "1 updated" in said, "the next update goes on with the object that is there"
    site.unchanged()


def test_a_wait_that_failed_is_taken_up_again_without_a_change(site: Site, plane: Plane) -> None:
    wait = '{"pulumi.com/waitFor": "jsonpath={.data.go}=yes", "pulumi.com/timeoutSeconds": "2"}'
    site.declare(f'declare("core/v1:ConfigMap", "w", {{**named("w", annotations={wait}), "data": {{"k": "v"}}}})')
    assert "{.data.go} selected nothing" in site.up(check=False)
    assert site.state("w")["initErrors"]
    plane.kubectl("patch", "configmap", "w", "--type=merge", "-p", '{"data":{"go":"yes"}}')
    site.up()
    assert not site.state("w").get("initErrors")


def test_wait_for_a_condition_of_a_custom_object(site: Site, plane: Plane) -> None:
    site.declare(
        """
schema = {"type": "object", "x_kubernetes_preserve_unknown_fields": True}
crd = declare("apiextensions.k8s.io/v1:CustomResourceDefinition", "crd", {
    "metadata": {"name": "gadgets.example.org"},
    "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Gadget", "plural": "gadgets"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}})
wait = {"pulumi.com/waitFor": '["condition=Ready", "jsonpath={.status.url}"]'}
declare("example.org/v1:Gadget", "gadget", {**named("gadget", annotations=wait), "spec": {"size": 1}},
        depends_on=[crd])
"""
    )

    over = threading.Event()

    def make_ready() -> None:
        status = '{"status": {"url": "x", "conditions": [{"type": "Ready", "status": "True"}]}}'
        while not over.wait(0.5):
            # Until the object is there; afterwards it changes nothing.
            with contextlib.suppress(AssertionError):
                plane.kubectl(
                    "patch", "gadgets.example.org", "gadget", "--type=merge", "-p", status, "--request-timeout=5s"
                )

    helper = threading.Thread(target=make_ready)
    helper.start()
    try:
        site.up()
    finally:
        over.set()
        helper.join()
    assert site.state("gadget")["outputs"]["status"]["url"] == "x"
    site.unchanged()


def test_skip_await_and_the_annotation_for_time(site: Site) -> None:
    skip = '{"pulumi.com/skipAwait": "true"}'
    site.declare(
        WORKLOADS
        + f"""
declare("apps/v1:Deployment", "hurry", {{**named("hurry", annotations={skip}), "spec": workload("hurry", **NOWHERE)}})
"""
    )
    site.up()
    seconds = '{"pulumi.com/timeoutSeconds": "2"}'
    site.declare(
        WORKLOADS
        + f"""
declare("apps/v1:Deployment", "t", {{**named("t", annotations={seconds}), "spec": workload("t", **NOWHERE)}})
"""
    )
    assert "after 2 s" in site.up(check=False)


def test_jobs_succeed_or_fail(site: Site) -> None:
    job = """
spec = {{"restartPolicy": "Never", "containers": [{{"name": "c", "image": "nginx"}}], **{}}}
spec = {{"template": {{"spec": spec}}, "activeDeadlineSeconds": {}}}
declare("batch/v1:Job", "task", {{**named("task"), "spec": spec}})
"""
    site.declare(WORKLOADS + job.format("{}", 600))
    site.up()
    assert site.state("task")["outputs"]["status"]["succeeded"] == 1
    site.unchanged()
    site.declare(WORKLOADS + job.format("NOWHERE", 3))
    assert "[DeadlineExceeded] Job was active longer than specified deadline" in site.up(check=False)
    assert site.state("task")["initErrors"]


def test_claims_wait_to_be_bound_unless_their_class_says_otherwise(site: Site, plane: Plane) -> None:
    site.declare(
        """
def claim(name, **spec):
    return {**named(name), "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
                                    **spec}}
lazy = declare("storage.k8s.io/v1:StorageClass", "lazy", {"metadata": {"name": "lazy"}, "provisioner": "x.example.com",
               "volumeBindingMode": "WaitForFirstConsumer"})
declare("core/v1:PersistentVolumeClaim", "later", claim("later", storageClassName="lazy"), depends_on=[lazy])
volume = declare("core/v1:PersistentVolume", "pv", {"metadata": {"name": "pv-1"}, "spec": {
    "capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "manual",
    "hostPath": {"path": "/x"}}})
declare("core/v1:PersistentVolumeClaim", "now", claim("now", storageClassName="manual"), depends_on=[volume])
"""
    )
    site.up()
    assert site.state("now")["outputs"]["status"]["phase"] == "Bound"
    assert site.state("later")["outputs"]["status"]["phase"] == "Pending"
    site.unchanged()
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert plane.names("pvc") == []


def test_a_load_balancer_waits_for_its_address(site: Site, plane: Plane) -> None:
    site.declare(
        """
declare("core/v1:Service", "lb", {**named("lb"), "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}},
        custom_timeouts=pulumi.CustomTimeouts(create="2s"))
"""
    )
    assert "the Service got no load balancer address" in site.up(check=False)
    status = '{"status": {"loadBalancer": {"ingress": [{"ip": "198.18.0.1"}]}}}'
    plane.kubectl("patch", "service", "lb", "--subresource=status", "--type=merge", "-p", status)
    site.up()
    assert site.state("lb")["outputs"]["status"]["loadBalancer"]["ingress"] == [{"ip": "198.18.0.1", "ipMode": "VIP"}]


def test_a_killed_engine_leaves_a_state_that_the_next_up_completes(site: Site, plane: Plane) -> None:
    wait = '{"pulumi.com/waitFor": "jsonpath={.data.go}=yes"}'
    site.declare(
        f"""
first = declare("core/v1:ConfigMap", "first", {{**named("first"), "data": {{"k": "v"}}}})
declare("core/v1:ConfigMap", "mid", {{**named("mid", annotations={wait}), "data": {{"k": "v"}}}}, depends_on=[first])
"""
    )
    engine = site.begin_up(until="mid")
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    site.pulumi("cancel", "--yes")
    plane.kubectl("patch", "configmap", "mid", "--type=merge", "-p", '{"data":{"go":"yes"}}')
    said = site.up(check=False)
    # The create of `mid` was never recorded: the object is there, and taking it over is the user's decision.
    assert 'configmaps "mid" already exists' in said
    site.environment["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"] = "true"
    site.up()
    site.unchanged()


def test_the_api_server_may_go_away_for_a_while(site: Site, plane: Plane) -> None:
    names = [f"outage-{number}" for number in range(40)]
    site.declare(
        f"""
before = None
for name in {names}:
    before = declare("core/v1:ConfigMap", name, {{**named(name), "data": {{"k": "v"}}}},
                     depends_on=[before] if before else [])
"""
    )
    engine = site.begin_up(until="outage-1")
    os.kill(plane.pid("kube-apiserver"), signal.SIGKILL)
    time.sleep(2)
    plane.kwokctl("start", "cluster", "--wait", "60s")
    said, _ = engine.communicate(timeout=120)
    assert engine.returncode == 0, said
    assert sum("outage-" in name for name in plane.names("configmap")) == len(names)
    site.unchanged()


def test_an_unreachable_cluster_is_said_so(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    site.declare('declare("core/v1:ConfigMap", "un", {**named("un"), "data": {"k": "v"}})')
    site.up()
    right = site.environment["KUBECONFIG"]
    wrong = tmp_path_factory.mktemp("wrong") / "kubeconfig"
    wrong.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    )
    site.environment["KUBECONFIG"] = str(wrong)
    assert "cannot refresh default/un: the cluster is unreachable" in site.pulumi("refresh", "--yes", check=False)
    said = site.pulumi("destroy", "--yes", "--skip-preview", check=False)
    assert "cannot delete default/un: the cluster is unreachable" in said
    site.environment["PULUMI_K8S_DELETE_UNREACHABLE"] = "true"
    site.pulumi("refresh", "--yes")
    assert site.state("un") == {}
    del site.environment["PULUMI_K8S_DELETE_UNREACHABLE"]
    site.environment["KUBECONFIG"] = right
    site.plane.kubectl("delete", "configmap", "un")
