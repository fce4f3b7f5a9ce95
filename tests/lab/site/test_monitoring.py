"""The site measures itself: every part is read under its job, and requests count for their tenant."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.addons import cert_manager
from components.monitoring.prometheus import SELECTED
from components.monitoring.scraping import own_targets, pod_monitor
from lab import session
from lab.paths import SITE_FILE
from stacks.facts import metrics
from stacks.plan.site_plan import plan_file
from stacks.program.monitoring import targets_of
from tests import exposition
from tests.lab.site.cluster_objects import inventory, kubectl
from tests.lab.site.measured import MONITORING, PORT, Prometheus
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.replicas import ENVOYS, Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.test_network_policies import connects, pod_of_others

pytestmark = pytest.mark.row("002.09")

MODELS, GATEWAY = "inference-models", "inference-gateway"
MODEL = "qwen3-32b"
API = "monitoring.coreos.com"


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster) -> Prometheus:
    return Prometheus(cluster)


@pytest.fixture(scope="module")
def pulumi(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Pulumi:
    return Pulumi(site.lab, tmp_path_factory.mktemp("edited"))


def pods_by_job(cluster: Cluster) -> Counter[str]:
    """Pods that exist now and are to be read."""
    counts: Counter[str] = Counter()
    for target in (*targets_of(plan_file(SITE_FILE).site, MODELS, GATEWAY), *own_targets()):
        assert target.namespace is not None
        chosen = ",".join(f"{name}={value}" for name, value in target.pods.items())
        counts[target.job] += len(cluster.pods(target.namespace, chosen))
    return counts


def test_each_pod_of_each_job_answers(cluster: Cluster, prometheus: Prometheus) -> None:
    """As many targets as there are pods, and all of them up. A pod that is being replaced is both for a while."""
    until(lambda: prometheus.up() == pods_by_job(cluster), what="every pod up")
    pods = pods_by_job(cluster)
    assert pods["inference-engines"] == 4
    assert all(pods.values()), pods
    until(lambda: not prometheus.query("up == 0"), what="nothing down")


@pytest.mark.parametrize(
    "part", ["kube_state_metrics", "prometheus", "alertmanager", "prometheus_operator", "gateway_controllers"]
)
def test_the_list_of_a_part_is_what_it_exposes(cluster: Cluster, part: str) -> None:
    """As of those on the way of a request: tests/lab/site/test_exposed_metrics.py."""
    listed = metrics.load()[part]
    differences = [""]

    def alike() -> bool:
        # A part that has just started has not read all of its objects.
        differences[:] = exposition.differences(listed, exposition.union(scraped(cluster, listed.job)))
        return not differences

    try:
        until(alike, what="the names of the list")
    except AssertionError as late:
        raise AssertionError(f"{part}: {differences}") from late


def scraped(cluster: Cluster, job: str) -> list[str]:
    """What each pod of the job exposes."""
    texts = []
    for target in (*targets_of(plan_file(SITE_FILE).site, MODELS, GATEWAY), *own_targets()):
        if target.job != job:
            continue
        assert target.namespace is not None
        for pod in cluster.pods(target.namespace, ",".join(f"{name}={value}" for name, value in target.pods.items())):
            address = f"http://{pod.ip}:{target.port}{target.path}"
            texts.append(cluster.run_in(pod, "curl", "-sS", "--fail", "--max-time", "20", address))
    assert texts, "no pod"
    return texts


def test_engines_and_pickers_carry_the_name_of_their_model(prometheus: Prometheus) -> None:
    for job in ("inference-engines", "inference-pickers"):
        models = {sample["metric"]["model"] for sample in prometheus.first(f'up{{job="{job}"}}')}
        assert models == {"glm-5-1", "qwen3-32b"}


@pytest.mark.row("004.13")
def test_a_request_counts_for_its_client_and_its_tenant(site: Site, prometheus: Prometheus) -> None:
    """The model is the one that the client named."""
    client = "globex.batch"
    body = {"model": MODEL, "messages": [{"role": "user", "content": "count me"}], "max_tokens": 4}
    with site.http(key=site.front.keys[client]) as http:
        assert http.post("/chat/completions", json=body).is_success
    counted = f'gen_ai_server_request_duration_seconds_count{{client="{client}"}}'
    (sample, *_) = prometheus.first(counted)
    assert sample["metric"]["tenant"] == "globex"
    assert sample["metric"]["gen_ai_original_model"] == MODEL
    assert sample["metric"]["job"] == "inference-requests"


def test_alerts_have_a_receiver(prometheus: Prometheus) -> None:
    receivers = until(lambda: prometheus.ask("alertmanagers")["activeAlertmanagers"], what="Alertmanager found")
    assert len(receivers) == 1


def test_what_is_known_of_objects_is_known_of_the_platforms_own(prometheus: Prometheus) -> None:
    seen = {sample["metric"]["namespace"] for sample in prometheus.first("kube_pod_info")}
    assert seen == {MODELS, ENVOYS, "envoy-ai-gateway-system", cert_manager.NAMESPACE, MONITORING}
    (gpus,) = {
        sample["value"][1] for sample in prometheus.first('kube_node_status_allocatable{resource="nvidia_com_gpu"}')
    }
    assert gpus == "8"


@pytest.mark.row("004.11")
def test_no_other_pod_reads_metrics(site: Site, cluster: Cluster, prometheus: Prometheus, tmp_path: Path) -> None:
    """What Prometheus reads is shut to the others, and so is Prometheus; also to pods of other namespaces."""
    engine = cluster.ready_replicas(MODEL)[0]
    other = cluster.ready_replicas("glm-5-1")[0]
    (certificates,) = cert_manager.CERT_MANAGER.targets
    places = {
        (cluster.pickers(MODEL)[0], 9090),
        (cluster.envoys()[0], 19001),
        (cluster.envoys()[0], 1064),
        (cluster.pods(ENVOYS, "control-plane=envoy-gateway")[0], 19001),
        (cluster.pods(MONITORING, "app.kubernetes.io/name=kube-state-metrics")[0], 8080),
        (cluster.pods(MONITORING, "app.kubernetes.io/name=alertmanager")[0], 9093),
        (
            cluster.pods(cert_manager.NAMESPACE, "app.kubernetes.io/component=controller")[0],
            certificates.port,
        ),
    }
    with pod_of_others(site, cluster, "team-b", tmp_path) as stranger:
        for place, port in sorted(places, key=str):
            assert connects(cluster, prometheus.pod, place, port), (place.name, port)
            for other_pod in (engine, stranger):
                assert not connects(cluster, other_pod, place, port), (other_pod.name, place.name, port)
        assert not connects(cluster, stranger, prometheus.pod, PORT)
    assert connects(cluster, prometheus.pod, engine, 8000)
    assert not connects(cluster, engine, other, 8000)
    assert not connects(cluster, engine, prometheus.pod, PORT)


def test_the_api_server_keeps_each_monitor_as_it_is_declared(site: Site) -> None:
    """It drops fields that the definitions do not have, and refuses values of another type."""
    plan = plan_file(SITE_FILE)
    held = {
        body["metadata"]["name"]: body["spec"]
        for body in json.loads(kubectl(site.lab, "get", f"podmonitors.{API}", "-n", MONITORING, "-o", "json"))["items"]
    }
    declared = [
        pod_monitor(target, MONITORING, SELECTED)
        for target in (*targets_of(plan.site, MODELS, GATEWAY), *own_targets())
    ]
    assert held == {body["metadata"]["name"]: body["spec"] for body in declared}
    wrong: dict[str, Any] = declared[0]
    wrong["spec"]["podMetricsEndpoints"][0]["portNumber"] = "http"
    refused = subprocess.run(
        ["kubectl", "apply", "--dry-run=server", "-f", "-"],
        input=json.dumps(wrong),
        env=session.environment(site.lab),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "portNumber" in refused.stderr
    assert refused.returncode != 0


def test_the_operator_is_short_of_no_permission(site: Site) -> None:
    written = sorted((site.lab.logs / "pods").glob(f"{MONITORING}_prometheus-operator-*/**/*.log"))
    lines = [line for file in written for line in file.read_text().splitlines()]
    assert lines
    assert [line for line in lines if "is forbidden" in line] == []


def test_a_second_up_has_nothing_to_do(pulumi: Pulumi) -> None:
    assert pulumi.changes() == {}


@pytest.mark.exhaustive
def test_a_site_that_stops_to_measure_keeps_nothing_of_it(site: Site, pulumi: Pulumi) -> None:
    """But for definitions, which are deleted by hand: no namespace or volume, and no port that is open to what is gone.

    Last: it is gone for good.
    """

    def stop(document: Document) -> None:
        document["monitoring"] = {"system": "none"}

    pulumi("up", "--yes", "--skip-preview", *pulumi.edited(stop))
    kubectl(site.lab, "delete", "customresourcedefinitions", "-l", "inference-platform/definitions=prometheus-operator")
    # Until discovery has dropped them, no list of all kinds can be had.
    until(lambda: API not in kubectl(site.lab, "api-resources", "--output=name"), what="no kind of the operator's")
    until(lambda: not _traces(site), what="nothing left")


def _traces(site: Site) -> list[str]:
    words = (MONITORING, API)
    return [name for name, item in inventory(site.lab).items() if any(word in json.dumps(item) for word in words)]
