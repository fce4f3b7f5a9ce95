"""The Prometheus operator and what it makes, on a bare lab: StatefulSets with claims, init containers and reloaders.

The operator is the one that writes these pods; nothing here but its custom resources says what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, dynamic

from definitions import applying
from lab.cluster import api
from lab.paths import Lab
from stacks.facts import versions
from tests.lab.runner.pods import read, wait_ready
from tests.lab.waiting import eventually

SPACE = "measured"
OPERATOR = "monitoring.coreos.com/v1"
PROMETHEUS, ALERTMANAGER = ("prometheus-own-0", 9090), ("alertmanager-own-0", 9093)
IMAGES = versions.load().images


def definitions(bundle: Path) -> list[dict[str, Any]]:
    pins = versions.load()
    own = pins.crds_with(pins.optional_parts).keys() - pins.crds_with().keys()
    return [definition for file in sorted(own) for definition in applying.read(bundle / "crds" / file, pins.crds[file])]


def account(name: str) -> list[dict[str, Any]]:
    """An account that may do everything: what each may do is not this test's matter."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SPACE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{SPACE}-{name}"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": SPACE}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        },
    ]


def program(name: str, image: str, *args: str) -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/name": name}
    container = {
        "name": name,
        "image": image,
        "args": list(args),
        "ports": [{"name": "metrics", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 1},
    }
    return [
        *account(name),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"serviceAccountName": name, "containers": [container]},
                },
            },
        },
    ]


def own(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": OPERATOR, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def monitor(name: str, port: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app.kubernetes.io/name": name}}
    return own("PodMonitor", name, {"selector": selector, "podMetricsEndpoints": [{"port": port}]})


def alert(name: str) -> dict[str, Any]:
    return own("PrometheusRule", "own", {"groups": [{"name": "own", "rules": [{"alert": name, "expr": "vector(1)"}]}]})


def server(image: str) -> dict[str, Any]:
    """What both servers have: a claim, and a user who is not root."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "image": image,
        "version": versions.parts(image)[1],
        "replicas": 1,
        "storage": {"volumeClaimTemplate": {"spec": claim}},
        "resources": {"requests": {"memory": "64Mi"}},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "fsGroup": 65534},
    }


def objects() -> list[dict[str, Any]]:
    reloader = f"--prometheus-config-reloader={IMAGES.config_reloader}"
    watched = (f"--namespaces={SPACE}", "--resources=pods,statefulsets")
    receiver = {"namespace": SPACE, "name": "alertmanager-operated", "port": "web"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        *program("prometheus-operator", IMAGES.prometheus_operator, reloader, f"--namespaces={SPACE}"),
        *program("kube-state-metrics", IMAGES.kube_state_metrics, *watched),
        *account("prometheus"),
        own("Alertmanager", "own", server(IMAGES.alertmanager)),
        own(
            "Prometheus",
            "own",
            {
                **server(IMAGES.prometheus),
                "serviceAccountName": "prometheus",
                "scrapeInterval": "5s",
                "evaluationInterval": "5s",
                "podMonitorSelector": {},
                "ruleSelector": {},
                "alerting": {"alertmanagers": [receiver]},
            },
        ),
        monitor("kube-state-metrics", "metrics"),
        monitor("prometheus", "web"),
        alert("First"),
    ]


@pytest.fixture(scope="module")
def measured(bare_lab: Lab) -> Iterator[client.ApiClient]:
    """A lab with the operator and what it made, all of it ready."""
    crds = definitions(Lab.from_environment().bundle)
    with api.connect(bare_lab) as connection:
        api.apply(connection, *crds)
        kinds = client.ApiextensionsV1Api(connection)
        names = [definition["metadata"]["name"] for definition in crds]
        eventually(lambda: all(is_served(kinds.read_custom_resource_definition(name)) for name in names))
        api.apply(connection, *objects())
        core = client.CoreV1Api(connection)
        for pod, _ in (PROMETHEUS, ALERTMANAGER):
            wait_ready(core, SPACE, pod)
        yield connection
        core.delete_namespace(SPACE)


def is_served(definition: Any) -> bool:
    return any(entry.type == "Established" and entry.status == "True" for entry in definition.status.conditions or [])


def ask(connection: client.ApiClient, where: tuple[str, int], path: str, **parameters: str) -> httpx.Response:
    pod, port = where
    address = read(client.CoreV1Api(connection), SPACE, pod).status.pod_ip
    return httpx.get(f"http://{address}:{port}{path}", params=parameters, timeout=20).raise_for_status()


def values(connection: client.ApiClient, query: str, **parameters: str) -> list[tuple[dict[str, str], str]]:
    answer = ask(connection, PROMETHEUS, "/api/v1/query", query=query, **parameters).json()
    return [(series["metric"], series["value"][1]) for series in answer["data"]["result"]]


def alerts(connection: client.ApiClient) -> set[str]:
    """Names of what Alertmanager has been told and is not over."""
    return {entry["labels"]["alertname"] for entry in ask(connection, ALERTMANAGER, "/api/v2/alerts").json()}


def test_both_servers_say_that_they_are_ready(measured: client.ApiClient) -> None:
    for where in (PROMETHEUS, ALERTMANAGER):
        assert ask(measured, where, "/-/ready").status_code == 200


def test_prometheus_reads_its_targets(measured: client.ApiClient) -> None:
    query = 'up{namespace="measured"} == 1'
    answering = eventually(lambda: len(pods := {labels["pod"] for labels, _ in values(measured, query)}) == 2 and pods)
    assert PROMETHEUS[0] in answering


def test_kube_state_metrics_reports_what_the_api_server_knows(measured: client.ApiClient) -> None:
    query = f'kube_statefulset_status_replicas_ready{{exported_namespace="{SPACE}"}} == 1'
    both = {"prometheus-own", "alertmanager-own"}
    eventually(lambda: {labels["statefulset"] for labels, _ in values(measured, query)} == both)


def test_an_alert_reaches_alertmanager_and_a_changed_rule_is_loaded(measured: client.ApiClient) -> None:
    eventually(lambda: "First" in alerts(measured))
    api.apply(measured, alert("Second"))
    eventually(lambda: "Second" in alerts(measured))


def test_what_was_measured_outlives_the_pod(measured: client.ApiClient) -> None:
    query = f'process_start_time_seconds{{pod="{PROMETHEUS[0]}"}}'
    core = client.CoreV1Api(measured)
    [(_, started)] = eventually(lambda: values(measured, query))
    then = values(measured, f"max(timestamp({query}))")[0][1]
    before = read(core, SPACE, PROMETHEUS[0]).metadata.uid
    core.delete_namespaced_pod(PROMETHEUS[0], SPACE)
    eventually(lambda: read(core, SPACE, PROMETHEUS[0]).metadata.uid != before)
    wait_ready(core, SPACE, PROMETHEUS[0])
    assert [value for _, value in values(measured, query, time=then)] == [started]
    assert [value for _, value in eventually(lambda: newer(measured, query, started))] != [started]


def newer(connection: client.ApiClient, query: str, started: str) -> list[tuple[dict[str, str], str]]:
    return values(connection, f"{query} > {started}")


@pytest.mark.parametrize("kind", ["Prometheus", "Alertmanager"])
def test_the_operator_reports_both_as_available(measured: client.ApiClient, kind: str) -> None:
    served = dynamic.DynamicClient(measured).resources

    def conditions() -> dict[str, str]:
        state = served.get(api_version=OPERATOR, kind=kind).get(name="own", namespace=SPACE).to_dict()
        return {entry["type"]: entry["status"] for entry in state["status"]["conditions"]}

    # It hears of a ready pod from the StatefulSet's status, after others did.
    eventually(lambda: conditions() == {"Available": "True", "Reconciled": "True"})
