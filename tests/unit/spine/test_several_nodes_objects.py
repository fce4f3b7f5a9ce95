"""Replicas over several nodes: the group of pods that each is, who reaches them, and what a drain may take."""

from __future__ import annotations

import copy
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from components.models import replica_groups
from components.models.liveness import PROGRAM, WATCH_PORT
from components.placing import budget
from policy import serving
from policy.model import Resource, SiteFacts
from sitectl.change.changes import Change, Op
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Verdict
from sitectl.offline.set_fields import ROWS
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.test_several_nodes import alone

pytestmark = pytest.mark.row("opening 1", "002.12")

MODEL = "glm-5-1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    recorder = Recorder()
    folder = tmp_path_factory.mktemp("sites")
    _, requests = requested(plan_values(alone(), "site.yaml").site, folder, recorder)
    after = {urn.rpartition("::")[2] for urn in requests[f"{MODEL}-server"].dependencies}
    assert "groups-lws" in after
    return recorder


@pytest.fixture(scope="module")
def made(recorded: Recorder) -> dict[str, Any]:
    """The inputs of each resource by name."""
    return {name: resource.inputs for name, resource in recorded.resources.items()}


@pytest.mark.parametrize(("lets_go", "broken"), [(None, 0), (0, 1), (2, 0), (3, 1)])
def test_the_budget_of_groups_keeps_the_rules(recorded: Recorder, lets_go: int | None, broken: int) -> None:
    """With two pods a group, a third one may be of a second group."""
    resources = [
        Resource(type=resource.typ, name=name, body=copy.deepcopy(resource.inputs))
        for name, resource in recorded.resources.items()
    ]
    budget = next(resource for resource in resources if resource.name == f"{MODEL}-budget")
    if lets_go is not None:
        budget.body["spec"]["maxUnavailable"] = lets_go
    assert len(list(serving.disruption_budget(resources, SiteFacts(name="test")))) == broken


def test_a_change_of_the_groups_is_judged_as_of_replicas() -> None:
    def groups(replicas: int, image: str = "engine:1") -> dict[str, Any]:
        container = {"name": "engine", "image": image, "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        template = {"size": 2, "leaderTemplate": {"spec": {"containers": [container]}}}
        spec = {"replicas": replicas, "leaderWorkerTemplate": template}
        return {"kind": "LeaderWorkerSet", "metadata": {"name": MODEL}, "spec": spec}

    def judged(op: Op, before: dict[str, Any], after: dict[str, Any]) -> Verdict:
        type_ = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
        (only,) = classify(Change(op=op, type=type_, name=MODEL, before=before, after=after))
        return only

    new = judged("create", {}, groups(2))
    assert (new.what, new.gpus) == ("starts 2 replicas on 32 GPUs", 32)
    changed_pods = judged("update", groups(2), groups(2, "engine:2"))
    assert (changed_pods.what, changed_pods.restarts) == ("restarts 2 replicas, one after the other", 2)
    assert judged("update", groups(2), groups(3)).gpus == 16


def test_explain_names_the_keys_of_a_groups_fields(made: dict[str, Any]) -> None:
    rows = [row for row in ROWS if row.kind == "LeaderWorkerSet"]
    assert rows
    for row in rows:
        value: Any = made[f"{MODEL}-server"]
        for part in row.path.split(r"\."):
            value = value[part]
        key = row.key.removeprefix("models.{model}.server.")
        assert value == alone()["models"][MODEL]["server"][key] == 2


def engine(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return dict(container)


def test_a_replica_is_a_group_of_pods_of_one_node_each(made: dict[str, Any]) -> None:
    server = made[f"{MODEL}-server"]
    assert (server["apiVersion"], server["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert server["spec"]["replicas"] == 2
    group = server["spec"]["leaderWorkerTemplate"]
    assert (group["size"], group["restartPolicy"]) == (2, "RecreateGroupAfterStart")
    assert server["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == {
        "maxUnavailable": 1,
        "maxSurge": 0,
        "partition": 0,
    }
    for template in (group["leaderTemplate"], group["workerTemplate"]):
        limits = engine(template)["resources"]["limits"]
        assert limits == {"nvidia.com/gpu": "8", "rdma/hca_shared": "1"}
        assert engine(template)["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    level = made["inference-models-namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"


def test_groups_are_made_once_the_api_server_trusts_the_webhook(made: dict[str, Any]) -> None:
    mark = made["groups-answering"]["metadata"]
    assert mark["name"] == "lws-validating-webhook-configuration"
    assert mark["annotations"]["pulumi.com/waitFor"] == "jsonpath={.webhooks[0].clientConfig.caBundle}"


def test_the_leader_alone_takes_requests(made: dict[str, Any]) -> None:
    group = made[f"{MODEL}-server"]["spec"]["leaderWorkerTemplate"]
    leader, worker = group["leaderTemplate"], group["workerTemplate"]
    common = {"--tensor-parallel-size=8", "--pipeline-parallel-size=2", "--nnodes=2"}
    common |= {"--distributed-executor-backend=mp", "--master-addr=$(LWS_LEADER_ADDRESS)"}
    for template, own in ((leader, {"--node-rank=0"}), (worker, {"--node-rank=$(LWS_WORKER_INDEX)", "--headless"})):
        assert common | own <= set(engine(template)["args"])
        (budget_s,) = (e["value"] for e in engine(template)["env"] if e["name"] == "VLLM_ENGINE_READY_TIMEOUT_S")
        waits = {f"--{kind}distributed-timeout-seconds={budget_s}" for kind in ("", "cpu-")}
        assert waits <= set(engine(template)["args"]), "a rank waits for one that still reads"
    assert "--headless" not in engine(leader)["args"]
    assert not {"ports", "startupProbe", "readinessProbe", "livenessProbe"} & engine(worker).keys()
    assert engine(leader)["readinessProbe"]["httpGet"]["path"] == "/health"
    assert PROGRAM not in {container["name"] for container in worker["spec"].get("initContainers", ())}
    selected = made[f"{MODEL}-pool"]["spec"]["selector"]["matchLabels"]
    assert selected.items() <= leader["metadata"]["labels"].items()
    assert not selected.items() <= worker["metadata"]["labels"].items()


def test_pods_of_the_groups_reach_each_other_and_names_alone(made: dict[str, Any]) -> None:
    spec = made[f"{MODEL}-group-policy"]["spec"]
    own = {"podSelector": {"matchLabels": {"leaderworkerset.sigs.k8s.io/name": MODEL}}}
    assert spec["podSelector"] == own["podSelector"]
    assert spec["ingress"] == [{"from": [own]}]
    assert spec["egress"] == [{"to": [own]}, {"ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]}]


@pytest.mark.parametrize(("nodes", "groups", "pods"), [(2, 1, 1), (2, 2, 3), (3, 2, 4)])
def test_a_drain_takes_so_many_groups_at_a_time(nodes: int, groups: int, pods: int) -> None:
    """The last pod that goes finds the other groups out whole."""
    single = budget("m", "n", {}, max_unavailable=groups)
    assert replica_groups.disruption_budget(single, nodes)["spec"] == {
        "maxUnavailable": pods,
        "selector": {"matchLabels": {"leaderworkerset.sigs.k8s.io/name": "m"}},
        # A leader whose worker is lost serves nothing, and keeps no node from being drained.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def test_a_worker_stays_until_its_leader_has_ended(made: dict[str, Any]) -> None:
    """Its hook runs here with the leader's port on this machine, which closes after a moment."""
    worker = made[f"{MODEL}-server"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    _, flag, text = engine(worker)["lifecycle"]["preStop"]["exec"]["command"]
    leader = socket.create_server(("127.0.0.1", 0))
    port = leader.getsockname()[1]
    text = text.replace(str(WATCH_PORT), str(port))
    hook = subprocess.Popen([sys.executable, flag, text], env={**os.environ, "LWS_LEADER_ADDRESS": "127.0.0.1"})
    threading.Event().wait(2)
    assert hook.poll() is None
    leader.close()
    assert hook.wait(15) == 0
    grace_s = worker["spec"]["terminationGracePeriodSeconds"]
    assert (
        grace_s
        == made[f"{MODEL}-server"]["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"][
            "terminationGracePeriodSeconds"
        ]
    )


def test_simulators_of_a_group_join_no_other(made: dict[str, Any]) -> None:
    """Their image has no Python, and knows none of vLLM's flags."""
    pod = {"containers": [{**engine(made[f"{MODEL}-server"]["spec"]["leaderWorkerTemplate"]["leaderTemplate"])}]}
    template = {"metadata": {"labels": {"app.kubernetes.io/name": "model-server"}}, "spec": pod}
    whole = {"metadata": {"name": MODEL}, "spec": {"replicas": 2, "template": template}}
    group = replica_groups.leader_worker_set(whole, 2, "", 60)["spec"]["leaderWorkerTemplate"]
    assert engine(group["leaderTemplate"]) == engine(template)
    left_out = engine(template).keys() - engine(group["workerTemplate"]).keys()
    assert left_out == {"ports", "startupProbe", "readinessProbe", "livenessProbe"}
    assert engine(group["workerTemplate"]).items() <= engine(template).items()
    assert group["workerTemplate"]["metadata"]["labels"]["app.kubernetes.io/name"] == replica_groups.WORKER


@pytest.mark.slow
def test_a_site_without_such_a_model_has_nothing_of_it(tmp_path: Path) -> None:
    recorder = Recorder()
    single = alone({"models.glm-5-1.server.nodes": 1})
    requested(plan_values(single, "site.yaml").site, tmp_path, recorder)
    names = {name: resource.inputs for name, resource in recorder.resources.items()}
    assert names[f"{MODEL}-server"]["kind"] == "Deployment"
    assert not [name for name in names if "lws" in name or name.startswith("groups")]


def test_missing_groups_and_their_gpus_are_counted_for_the_model(made: dict[str, Any]) -> None:
    """A leader is called NAME-GROUP, which a Deployment's pattern would read as a shorter model's pod."""
    groups = made["monitoring-rules"]["spec"]["groups"]
    rules = {rule.get("alert") or rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}
    ready = (
        'kube_statefulset_status_replicas_ready{job="kube-state-metrics", namespace="inference-models", '
        f'statefulset=~"{MODEL}"}}'
    )
    assert ready in rules["ReplicaMissing"]
    assert f"{ready}) == 0" in rules["ModelHasNoReplica"]
    (of_groups,) = {text for text in re.findall(r'pod=~"([^"]+)"', rules["model:gpus:assigned"]) if MODEL in text}
    for pod in (f"{MODEL}-0", f"{MODEL}-1-1"):
        matched = re.fullmatch(of_groups, pod)
        assert matched is not None
        assert matched[1] == MODEL
    assert f'pod!~"{of_groups}"' in rules["model:gpus:assigned"]
