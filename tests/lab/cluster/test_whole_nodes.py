"""The real scheduler keeps whole nodes for replicas that need them, though smaller replicas come first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from kubernetes import client

from components.models import model_server
from components.specs.model_server import pod_priority
from floor import gpu_nodes
from lab.cluster import api
from lab.cluster.parts import present, spec_of
from lab.paths import SITE_FILE, Lab
from stacks.plan.site_plan import plan_file
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("002.12", "opening 1")

WHOLE = ["hgx-1", "hgx-2"]
OTHERS = ["hgx-3", "hgx-4"]


@pytest.fixture(scope="module")
def cluster(spare_lab: Lab) -> Lab:
    bring_up_cluster(spare_lab, hgx=4)
    return spare_lab


@pytest.fixture(autouse=True)
def room(core: client.CoreV1Api) -> None:
    """All GPUs are free: pods of an earlier test are gone."""
    chosen = f"app.kubernetes.io/name={model_server.SERVER}"
    eventually(lambda: not core.list_pod_for_all_namespaces(label_selector=chosen).items)


def start(cluster: Lab, namespace: str, model: str, replicas: int, *, priority: int | None = None) -> None:
    """Replicas of vLLM as the program declares them, without weights; they are placed, and their image is nowhere.

    What they request of CPU and memory moves the scheduler's scores too. priority: as the site's key.
    """
    planned = plan_file(SITE_FILE).models[model].stable
    own = planned.spec.server.model_copy(update={"priority": priority})
    ranked = pod_priority(own, whole_nodes=planned.server.whole_nodes)
    spec = planned.spec.server.model_copy(update={"replicas": replicas, "engine": "vllm"})
    engine = replace(planned.engine, image="registry.example/none:1")
    server = replace(planned.server, priority=ranked)
    body: dict[str, Any] = model_server.deployment(model, namespace, spec, server, engine)
    pod = body["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    pod["volumes"] = container["volumeMounts"] = []
    # A cluster without a GPU stack has no such class.
    del pod["runtimeClassName"]
    with api.connect(cluster) as connection:
        if ranked.value:
            ranking = client.V1PriorityClass.model_validate(model_server.priority_class(model, namespace, ranked))
            client.SchedulingV1Api(connection).create_priority_class(ranking)
        client.AppsV1Api(connection).create_namespaced_deployment(namespace, client.V1Deployment.model_validate(body))


def placed(core: client.CoreV1Api, namespace: str, model: str, replicas: int) -> dict[str, int]:
    """Replicas by node, once the scheduler has placed all of them."""
    chosen = ",".join(f"{key}={value}" for key, value in model_server.labels(model).items())

    def nodes() -> list[str]:
        pods = core.list_namespaced_pod(namespace, label_selector=chosen).items
        names = [spec_of(pod).node_name for pod in pods]
        return [present(name) for name in names] if len(names) == replicas and all(names) else []

    return Counter(eventually(nodes))


def label(core: client.CoreV1Api, nodes: list[str], value: str | None) -> None:
    for node in nodes:
        core.patch_node(node, {"metadata": {"labels": {gpu_nodes.WHOLE_LABEL: value}}})


def test_small_replicas_leave_whole_nodes_alone(cluster: Lab, core: client.CoreV1Api, namespace: str) -> None:
    """However many there are on the other nodes, up to as many as these hold; the large ones come last."""
    label(core, WHOLE, "true")
    try:
        start(cluster, namespace, "qwen3-32b", 14)
        assert placed(core, namespace, "qwen3-32b", 14) == dict.fromkeys(OTHERS, 7)
        start(cluster, namespace, "glm-5-1", 2)
        assert placed(core, namespace, "glm-5-1", 2) == dict.fromkeys(WHOLE, 1)
    finally:
        label(core, WHOLE, None)


def test_small_replicas_take_a_whole_node_where_no_other_has_room(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    label(core, WHOLE, "true")
    try:
        start(cluster, namespace, "qwen3-32b", 18)
        assert placed(core, namespace, "qwen3-32b", 18) == dict.fromkeys(OTHERS, 8) | dict.fromkeys(WHOLE, 1)
    finally:
        label(core, WHOLE, None)


def test_without_the_label_replicas_are_on_nodes_of_their_own(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    """On a cluster whose nodes the site does not list."""
    assert not any(gpu_nodes.WHOLE_LABEL in (present(node.metadata).labels or {}) for node in core.list_node().items)
    start(cluster, namespace, "qwen3-32b", 4)
    assert placed(core, namespace, "qwen3-32b", 4) == dict.fromkeys([*WHOLE, *OTHERS], 1)


def lose(core: client.CoreV1Api, namespace: str, node: str) -> None:
    """The node takes nothing more, and what was there is gone."""
    core.patch_node(node, {"spec": {"unschedulable": True}})
    for pod in core.list_namespaced_pod(namespace, field_selector=f"spec.nodeName={node}").items:
        core.delete_namespaced_pod(present(present(pod.metadata).name), namespace, grace_period_seconds=0)


def test_a_large_replica_of_a_lost_node_takes_a_node_of_small_ones(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    """With a priority: two of four small replicas make room, and start beside the others."""
    label(core, WHOLE, "true")
    try:
        start(cluster, namespace, "qwen3-32b", 4)
        assert placed(core, namespace, "qwen3-32b", 4) == dict.fromkeys(OTHERS, 2)
        start(cluster, namespace, "glm-5-1", 2, priority=100)
        assert placed(core, namespace, "glm-5-1", 2) == dict.fromkeys(WHOLE, 1)
        lose(core, namespace, "hgx-1")
        (taken,) = placed(core, namespace, "glm-5-1", 2).keys() - {"hgx-2"}
        assert taken in OTHERS
        (left,) = {*OTHERS} - {taken}
        eventually(lambda: placed(core, namespace, "qwen3-32b", 4) == {left: 4})
    finally:
        core.patch_node("hgx-1", {"spec": {"unschedulable": None}})
        label(core, WHOLE, None)


def test_without_a_priority_it_waits_for_its_node_and_is_placed_before_others(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    """No small replica ends for it."""
    label(core, WHOLE, "true")
    try:
        start(cluster, namespace, "qwen3-32b", 4)
        assert placed(core, namespace, "qwen3-32b", 4) == dict.fromkeys(OTHERS, 2)
        start(cluster, namespace, "glm-5-1", 2)
        assert placed(core, namespace, "glm-5-1", 2) == dict.fromkeys(WHOLE, 1)
        lose(core, namespace, "hgx-1")

        def refusals() -> list[str]:
            pods = core.list_namespaced_pod(namespace, label_selector="app.kubernetes.io/instance=glm-5-1").items
            waiting = [pod for pod in pods if not spec_of(pod).node_name]
            return [
                condition.message or ""
                for pod in waiting
                for condition in present(pod.status).conditions or []
                if condition.reason == "Unschedulable"
            ]

        (why,) = eventually(refusals)
        assert "preemptionPolicy=Never" in why
        assert placed(core, namespace, "qwen3-32b", 4) == dict.fromkeys(OTHERS, 2)
        core.patch_node("hgx-1", {"spec": {"unschedulable": None}})
        assert placed(core, namespace, "glm-5-1", 2) == dict.fromkeys(WHOLE, 1)
    finally:
        core.patch_node("hgx-1", {"spec": {"unschedulable": None}})
        label(core, WHOLE, None)
