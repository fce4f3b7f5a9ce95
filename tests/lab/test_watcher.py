"""The watcher against a real API server, with its own account, in front of a simulated Prometheus.

Simulated: what DCGM reports, and nodes and their Pods (KWOK). Real: etcd, the API server with its authorization and
its eviction of Pods, and the controllers that keep disruption budgets and replace Pods.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest
import yaml
from prometheus_client import REGISTRY

from components.monitoring import gpu_faults
from components.monitoring.load_test import daemon_set
from components.monitoring.watcher import WatcherArgs, permissions, settings
from components.placing import budget
from components.specs.monitoring import GpuFaultsSpec
from floor import gpu_nodes, namespaces
from lab.paths import Lab
from services.load_test.verdict import Floors, LoadTest
from services.watcher import variables
from services.watcher.settings import NodeOffer, settings_of
from services.watcher.sources import ApiServerSource, PrometheusSource
from services.watcher.variables import AGREE_S, APART_S, CHECK, CHECKED, FAULT, LOAD_TEST, SUSPECT
from services.watcher.watch import NodeWatch
from tests.lab.plugin_kubernetes.conftest import Plane, plane
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("opening 25", "002.12")

__all__ = ["plane"]
NODES = ("hgx-1", "hgx-2", "hgx-3")
GPU, XID = gpu_nodes.RESOURCE, "xid-79"
LABELS = {"app.kubernetes.io/name": "model-server", "app.kubernetes.io/instance": "chat"}
TEST = LoadTest(name="h200-sxm-8", gpus=8, floors=Floors(tflops=1, memory_gb_s=1, all_reduce_gb_s=1))
ARGS = WatcherArgs(
    spec=GpuFaultsSpec(on_fault="drain", new_nodes="load_test"),
    image="watcher",
    nodes={name: NodeOffer(resource=GPU, count=8, gpus=8, load_test=TEST.name) for name in NODES},
    may_lose=NODES,
    models_namespace=namespaces.MODELS,
    validated=True,
    load_tests=[TEST],
    load_image="vllm",
    scrapers=[],
    needs=[],
)


class SimulatedPrometheus(ThreadingHTTPServer):
    """Answers the watcher's queries as if DCGM's exporters had reported this."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SimulatedAnswers)
        self.faults: dict[str, str] = {}
        self.measured = dict.fromkeys(NODES, 8)
        self.is_away = False

    def answer(self, query: str) -> list[dict[str, Any]]:
        """Series of one query."""
        series: list[tuple[dict[str, str], int]] = []
        if query == gpu_faults.FAULTS:
            series = [({"node": node, "gpu": "3", "fault": code}, 1) for node, code in self.faults.items()]
        elif query == gpu_faults.MEASURED:
            series = [({"node": node}, gpus) for node, gpus in self.measured.items()]
        else:
            assert query == gpu_faults.FABRIC_JOINING
        return [{"metric": labels, "value": [0, str(value)]} for labels, value in series]


class _SimulatedAnswers(BaseHTTPRequestHandler):
    server: SimulatedPrometheus

    def do_POST(self) -> None:
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        body = json.dumps({"status": "success", "data": {"result": self.server.answer(given["query"][0])}}).encode()
        self.send_response(503 if self.server.is_away else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not a line for each query."""


@dataclass
class Rig:
    """Three nodes, two replicas on the first, and what reports on them."""

    plane: Plane
    prometheus: SimulatedPrometheus
    client: httpx2.Client
    now: float

    def watcher(self) -> NodeWatch:
        """One that has just started."""
        given = settings_of(settings(ARGS))
        asked = httpx2.Client(base_url=f"http://127.0.0.1:{self.prometheus.server_port}", trust_env=False)
        return NodeWatch(
            given, PrometheusSource(asked, given), ApiServerSource(self.client, given, namespaces.MONITORING)
        )

    def look(self, watcher: NodeWatch, *, later_s: float = 15) -> list[str]:
        """The kinds of what it does, so much later."""
        self.now += later_s
        return [type(act).__name__ for act in watcher.look(self.now, self.now)]

    def node(self, name: str) -> tuple[dict[str, str], dict[str, str]]:
        """Its taints by key, and its annotations."""
        node = self.plane.get("node", name)
        return {taint["key"]: taint.get("value", "") for taint in node["spec"].get("taints", ())}, node["metadata"][
            "annotations"
        ]

    def offer(self, name: str, gpus: int) -> None:
        """What its device plugin counts."""
        status = json.dumps({"status": {"allocatable": {GPU: str(gpus)}}})
        self.plane.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)

    def load_tests(self) -> list[dict[str, Any]]:
        """Their pods."""
        listed = self.plane.kubectl("get", "pods", "-n", namespaces.MONITORING, "-l", LOAD_TEST, "-o", "json")
        pods: list[dict[str, Any]] = json.loads(listed)["items"]
        return pods

    def fail_load(self, text: str) -> None:
        """Simulated: what the kubelet writes of a first container that ended with this."""
        (pod,) = self.load_tests()
        ended = {"exitCode": 1, "message": text, "reason": "Error"}
        (was,) = pod["status"]["initContainerStatuses"]
        again = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
        status = {
            "conditions": [{"type": "Ready", "status": "False"}],
            "initContainerStatuses": [{**was, "ready": False, **again}],
        }
        name, given = pod["metadata"]["name"], json.dumps({"status": status})
        self.plane.kubectl(
            "patch", "pod", "-n", namespaces.MONITORING, name, "--subresource=status", "--type=merge", "-p", given
        )

    def replicas(self, node: str) -> list[str]:
        """Names of those on a node that do not end."""
        listed = json.loads(self.plane.kubectl("get", "pods", "-n", namespaces.MODELS, "-o", "json"))["items"]
        ready = [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]
        return [pod["metadata"]["name"] for pod in ready if pod["spec"].get("nodeName") == node]


def _node(name: str) -> dict[str, Any]:
    counts = {"cpu": "32", "memory": "64Gi", "pods": "110", GPU: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": counts, "allocatable": counts},
    }


def _replicas() -> dict[str, Any]:
    # The image is never run.
    container = {"name": "engine", "image": "engine", "resources": {"limits": {GPU: "4"}}}
    repelled = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_first()]}}
    pod = {"containers": [container], "tolerations": [repelled], "affinity": affinity}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": namespaces.MODELS},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def _first() -> dict[str, Any]:
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODES[0]]}
    return {"weight": 100, "preference": {"matchExpressions": [named]}}


def _validator(node: str) -> dict[str, Any]:
    """Ready at once, as KWOK has it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"validator-{node}",
            "namespace": namespaces.GPU_STACK,
            "labels": {"app": "nvidia-operator-validator"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "validator", "image": "validator"}]},
    }


@pytest.fixture(scope="module")
def rig(plane: Plane) -> Iterator[Rig]:
    for space in (namespaces.MODELS, namespaces.MONITORING, namespaces.GPU_STACK):
        plane.kubectl("create", "namespace", space)
    eventually(lambda: "serviceaccount/default" in plane.names("serviceaccount", namespaces.GPU_STACK))
    labelled = [_node(name) for name in NODES]
    for node in labelled:
        node["metadata"]["labels"] = {"kubernetes.io/hostname": node["metadata"]["name"]}
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": gpu_nodes.RUNTIME_CLASS},
        "handler": "nvidia",
    }
    objects = [*permissions(ARGS), runtime, daemon_set(TEST, "vllm"), *labelled, *map(_validator, NODES)]
    plane.kubectl("apply", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": objects})
    plane.kubectl("apply", "-f", "-", given=budget("chat", namespaces.MODELS, LABELS))
    plane.kubectl("delete", "node", "node-1", "--ignore-not-found")
    user = plane.kubectl("create", "token", variables.SERVICE, "-n", namespaces.MONITORING, "--duration=1h").strip()
    cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    # Its certificate is checked nowhere here; who may do what is.
    client = httpx2.Client(
        base_url=cluster["server"], headers={"Authorization": f"Bearer {user}"}, verify=False, trust_env=False
    )
    prometheus = SimulatedPrometheus()
    Thread(target=prometheus.serve_forever, daemon=True).start()
    yield Rig(plane=plane, prometheus=prometheus, client=client, now=time.time())
    prometheus.shutdown()


def _metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_new_nodes_take_replicas_once_their_gpus_are_checked(rig: Rig) -> None:
    watcher = rig.watcher()
    rig.prometheus.measured["hgx-3"] = 7
    eventually(lambda: all(_ready(rig.plane, f"validator-{node}") for node in NODES))
    assert rig.look(watcher).count("Inspect") == len(NODES)
    assert rig.node("hgx-1")[0][CHECK] == "pending"
    assert rig.look(watcher) == ["Exercise", "Exercise"]
    assert _metric("watcher_unchecked", node="hgx-3", reason="DCGM reports 7 of 8 GPUs") == 1
    eventually(lambda: [_is_ready(pod) for pod in rig.load_tests()] == [True, True])
    rig.look(watcher)
    assert [CHECK in rig.node(name)[0] for name in NODES] == [False, False, True]
    # Without the label, the pod ends that has the GPUs.
    eventually(lambda: not rig.load_tests())
    rig.prometheus.measured["hgx-3"] = 8
    assert "Exercise" in rig.look(watcher)
    eventually(lambda: [_is_ready(pod) for pod in rig.load_tests()] == [True])
    rig.fail_load("GPU 3: 9 GB/s")
    rig.look(watcher)
    assert _metric("watcher_unchecked", node="hgx-3", reason="its load test fails: GPU 3: 9 GB/s") == 1
    assert CHECK in rig.node("hgx-3")[0]
    (failed,) = rig.load_tests()
    rig.plane.kubectl("delete", "pod", "-n", namespaces.MONITORING, failed["metadata"]["name"])
    eventually(lambda: rig.look(watcher) and CHECKED in rig.node("hgx-3")[1])
    assert CHECK not in rig.node("hgx-3")[0]
    assert LOAD_TEST not in rig.plane.get("node", "hgx-3")["metadata"]["labels"]
    assert set(rig.look(watcher)) <= {"Suspect"}


def _ready(here: Plane, pod: str) -> bool:
    return _is_ready(here.get("pod", pod, namespaces.GPU_STACK))


def _is_ready(pod: dict[str, Any]) -> bool:
    return {"type": "Ready", "status": "True"}.items() <= next(
        (entry for entry in pod["status"].get("conditions", ()) if entry["type"] == "Ready"), {}
    ).items()


def test_a_faulty_node_is_emptied_within_its_budget_and_a_second_one_stays(rig: Rig) -> None:
    """The API server dies in between, and the watcher too: the next one goes on."""
    rig.plane.kubectl("apply", "-f", "-", given=_replicas())
    eventually(lambda: len(rig.replicas("hgx-1")) == 2 and _allowed(rig.plane) == 1)
    watcher = rig.watcher()
    rig.prometheus.faults = {"hgx-1": XID, "hgx-2": "xid-48"}
    rig.offer("hgx-1", 7)
    rig.look(watcher)
    assert rig.node("hgx-1")[1][SUSPECT].startswith(XID)
    assert "the cluster has nothing" in rig.node("hgx-2")[1][SUSPECT]
    rig.offer("hgx-2", 7)
    # Where all are short, their device plugins may be what is wrong.
    assert "Drain" not in rig.look(watcher, later_s=AGREE_S)
    rig.offer("hgx-2", 8)
    assert "Drain" in rig.look(watcher, later_s=AGREE_S)
    rig.offer("hgx-2", 7)
    taints, marks = rig.node("hgx-1")
    assert (taints[FAULT], marks[FAULT]) == (XID, XID)
    assert SUSPECT not in marks
    events = json.loads(rig.plane.kubectl("get", "events", "-n", "default", "-o", "json"))["items"]
    (fault,) = [event for event in events if event["reason"] == "GpuFault"]
    assert "no longer on the bus" in fault["message"]

    rig.plane.kill("kube-apiserver")
    assert rig.look(watcher) == []
    assert _metric("watcher_blind", source="api-server") == 1
    rig.plane.kwokctl("start", "cluster", "--wait", "180s")

    watcher = rig.watcher()
    # While no other node takes the first one's successor, the budget keeps the second replica.
    rig.plane.kubectl("cordon", *NODES[1:])
    eventually(lambda: (rig.look(watcher), len(rig.replicas("hgx-1")) == 1)[1])
    rig.look(watcher)
    assert len(rig.replicas("hgx-1")) == 1
    assert _metric("watcher_evictions_total", result="refused")
    rig.plane.kubectl("uncordon", *NODES[1:])
    eventually(lambda: (rig.look(watcher), not rig.replicas("hgx-1"))[1])
    eventually(lambda: len(rig.replicas("hgx-2")) + len(rig.replicas("hgx-3")) == 2)
    rig.look(watcher, later_s=2 * AGREE_S)
    rig.look(watcher, later_s=2 * APART_S)
    assert FAULT not in rig.node("hgx-2")[0]
    assert rig.node("hgx-2")[1][SUSPECT].endswith("another node is out")
    assert _metric("watcher_out", node="hgx-1", fault=XID) == 1


def _allowed(here: Plane) -> int:
    """Replicas that may be evicted now."""
    return int(here.get("pdb", "chat", namespaces.MODELS)["status"].get("disruptionsAllowed", 0))


def test_without_prometheus_nothing_is_done_and_an_operators_word_is_kept(rig: Rig) -> None:
    """After the test above: hgx-1 is out, and hgx-2 waits."""
    watcher = rig.watcher()
    rig.plane.kubectl("taint", "nodes", "hgx-1", f"{FAULT}-")
    rig.offer("hgx-1", 8)
    rig.prometheus.is_away = True
    assert rig.look(watcher) == rig.look(watcher, later_s=2 * AGREE_S) == []
    assert _metric("watcher_blind", source="prometheus") == 1
    rig.prometheus.is_away = False
    # DCGM's exporter still shows the old Xid of hgx-1, which the operator has acknowledged: hgx-2 is next.
    rig.look(watcher)
    assert "Drain" in rig.look(watcher, later_s=AGREE_S)
    assert [rig.node(name)[0].get(FAULT) for name in NODES] == [None, "xid-48", None]
    # Another one that had seen the same, and decided before it read the Lease again.
    late = ApiServerSource(rig.client, settings_of(settings(ARGS)), namespaces.MONITORING)
    late.last()
    other = ApiServerSource(rig.client, settings_of(settings(ARGS)), namespaces.MONITORING)
    other.last()
    assert [late.hold("hgx-3", rig.now), other.hold("hgx-1", rig.now)] == [True, False]


def test_the_query_finds_each_fault_and_no_xid_that_was_not_seen_to_come(tmp_path: Path) -> None:
    """By Prometheus's own test tool."""
    gpu = 'job="gpus", node="{}", gpu="0", modelName="H200", pod="{}"'

    def series(metric: str, node: str, values: str, pod: str = "a") -> dict[str, str]:
        return {"series": f"DCGM_FI_DEV_{metric}{{{gpu.format(node, pod)}}}", "values": values}

    # A value per 5 minutes, asked for after 30 hours, which are 360.
    given = [
        *(series("GPU_TEMP", node, "60x360") for node in ("new", "changed", "old", "of-a-program")),
        series("XID_ERRORS", "new", "_x359 79x1"),
        series("XID_ERRORS", "changed", "48x357 79x2"),
        series("XID_ERRORS", "old", "79x360"),
        series("XID_ERRORS", "of-a-program", "_x359 31x1"),
        # With the first scrape after the exporter's restart.
        series("XID_ERRORS", "restarted", "0x349"),
        series("XID_ERRORS", "restarted", "_x352 79x8", "b"),
        # Prometheus was away from before the last day until an hour ago; and it is new, or its volume is.
        series("GPU_TEMP", "gap", "60x60 _x287 60x12"),
        series("XID_ERRORS", "gap", "79x60 _x287 79x12"),
        series("GPU_TEMP", "young", "_x348 60x12"),
        series("XID_ERRORS", "young", "_x348 79x12"),
        series("ROW_REMAP_FAILURE", "rows", "1x360"),
        series("ROW_REMAP_FAILURE", "well", "0x360"),
        series("FABRIC_MANAGER_STATUS", "fabric", "4x360"),
        series("FABRIC_MANAGER_STATUS", "well", "3x360"),
    ]
    xids = dict.fromkeys(("new", "changed", "restarted"), XID)
    faulty = {**xids, "rows": "row-remap-failed", "fabric": "fabric-failed"}
    expected = [
        {"labels": f'{{node="{node}", gpu="0", modelName="H200", fault="{fault}"}}', "value": _VALUES[fault]}
        for node, fault in faulty.items()
    ]
    check = {"expr": gpu_faults.FAULTS, "eval_time": "30h", "exp_samples": expected}
    cases = {"tests": [{"interval": "5m", "input_series": given, "promql_expr_test": [check]}]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    program = Lab.from_environment().bin / "promtool"
    done = subprocess.run(
        [program, "test", "rules", "cases.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


_VALUES = {XID: 79, "row-remap-failed": 1, "fabric-failed": 4}
