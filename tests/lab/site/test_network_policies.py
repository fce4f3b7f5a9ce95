"""Who reaches which pod of the running platform: who needs to, and nobody else.

Tried from the networks of pods that are there: connections are made in their namespaces.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from components.gateway.envoy_names import door_port
from lab.cluster.parts import name_of, present, spec_of
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import ENGINE_PORT, ENVOYS, MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("004.11")

MODEL, OTHER = "glm-5-1", "qwen3-32b"
AI_CONTROLLERS = "envoy-ai-gateway-system"
PICKER_PORT, PICKER_METRICS_PORT, XDS_PORT, EXTENSION_PORT, EXTPROC_ADMIN_PORT = 9002, 9090, 18000, 1063, 1064
ENVOY_METRICS_PORT = 19001
# By which policies let proxies in, within a namespace.
PROXY_LABELS = {"app.kubernetes.io/component": "proxy", "app.kubernetes.io/managed-by": "envoy-gateway"}
_TRY = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))"
# A dropped packet is not answered. Twice as long as a busy machine takes to accept, and every refusal waits for it.
_DROPPED_AFTER_S = 3


@pytest.fixture(scope="module")
def places(cluster: Cluster) -> dict[str, Replica]:
    """A pod of each kind by its name in the cases below."""
    return {
        "engine": cluster.ready_replicas(MODEL)[0],
        "other engine": cluster.ready_replicas(OTHER)[0],
        "picker": next(pod for pod in cluster.pickers(MODEL) if pod.ready),
        "other picker": next(pod for pod in cluster.pickers(OTHER) if pod.ready),
        "envoy": next(pod for pod in cluster.envoys() if pod.ready),
        "envoy gateway": cluster.pods(ENVOYS, "control-plane=envoy-gateway")[0],
        "ai gateway": cluster.pods(AI_CONTROLLERS, "app.kubernetes.io/name=ai-gateway-helm")[0],
    }


def listener_port(site: Site) -> int:
    """Of the gateway, in an Envoy's pod."""
    return door_port(urlsplit(site.address).port or 80)


@contextmanager
def pod_of_others(site: Site, cluster: Cluster, namespace: str, folder: Path) -> Iterator[Replica]:
    """A running pod in a namespace that has nothing else, and is gone afterwards."""
    container = {
        "name": "client",
        "image": "docker.io/library/python:3.13.1",
        "command": ["python3", "-c", "import signal; signal.pause()"],
    }
    bodies = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            # Labels of the platform's own pods, in the wrong namespace.
            "metadata": {"name": "client", "namespace": namespace, "labels": {**PROXY_LABELS}},
            "spec": {"containers": [container]},
        },
    ]
    file = folder / "stranger.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))
    kubectl(site.lab, "create", "-f", str(file))
    try:
        yield until(lambda: next((pod for pod in cluster.pods(namespace, "") if pod.ready), None), what="a client")
    finally:
        kubectl(site.lab, "delete", "namespace", namespace)


def connects(cluster: Cluster, source: Replica, target: Replica, port: int) -> bool:
    return reaches(cluster, source, target.ip, port)


def reaches(cluster: Cluster, source: Replica, address: str, port: int) -> bool:
    try:
        cluster.run_in(source, sys.executable, "-c", _TRY, address, str(port), str(_DROPPED_AFTER_S))
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        ("envoy", "engine", ENGINE_PORT),
        ("picker", "engine", ENGINE_PORT),
        ("envoy", "picker", PICKER_PORT),
        ("envoy", "envoy gateway", XDS_PORT),
        ("envoy gateway", "ai gateway", EXTENSION_PORT),
    ],
)
def test_the_platforms_own_ways_are_open(
    cluster: Cluster, places: dict[str, Replica], source: str, target: str, port: int
) -> None:
    assert connects(cluster, places[source], places[target], port)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        ("other engine", "engine", ENGINE_PORT),
        ("other picker", "engine", ENGINE_PORT),
        ("engine", "picker", PICKER_PORT),
        ("other picker", "picker", PICKER_PORT),
        ("other engine", "picker", PICKER_METRICS_PORT),
        ("engine", "envoy gateway", XDS_PORT),
        ("engine", "ai gateway", EXTENSION_PORT),
        ("engine", "envoy", EXTPROC_ADMIN_PORT),
    ],
)
def test_every_other_way_is_shut(
    cluster: Cluster, places: dict[str, Replica], source: str, target: str, port: int
) -> None:
    assert not connects(cluster, places[source], places[target], port)


STRANGERS = "team-a"


@pytest.fixture(scope="module")
def stranger(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A pod of a tenant on the same cluster, in a namespace of its own."""
    with pod_of_others(site, cluster, STRANGERS, tmp_path_factory.mktemp("stranger")) as pod:
        yield pod


@pytest.mark.parametrize(
    ("target", "port"),
    [
        ("engine", ENGINE_PORT),
        ("picker", PICKER_PORT),
        ("picker", PICKER_METRICS_PORT),
        ("envoy", EXTPROC_ADMIN_PORT),
        ("envoy", ENVOY_METRICS_PORT),
        ("envoy gateway", XDS_PORT),
        ("ai gateway", EXTENSION_PORT),
    ],
)
def test_a_pod_of_another_namespace_reaches_nothing_of_the_platform(
    cluster: Cluster, places: dict[str, Replica], stranger: Replica, target: str, port: int
) -> None:
    assert connects(cluster, places[target], places[target], port), "nothing listens there, so nothing is shown"
    assert not connects(cluster, stranger, places[target], port)


def test_a_pod_of_another_namespace_reaches_the_way_in(
    site: Site, cluster: Cluster, places: dict[str, Replica], stranger: Replica
) -> None:
    """As any client does, and there a key decides; a pod that reaches nothing at all would show nothing."""
    assert connects(cluster, stranger, places["envoy"], listener_port(site))


def test_link_local_addresses_lead_past_no_policy(cluster: Cluster, places: dict[str, Replica]) -> None:
    """The picker listens on IPv6, too."""
    picker = places["picker"]
    [local] = re.findall(r"inet6 (fe80:\S+)/", cluster.run_in(picker, "ip", "-6", "address", "show", "dev", "eth0"))
    assert reaches(cluster, picker, f"{local}%eth0", PICKER_PORT)
    assert not reaches(cluster, places["engine"], f"{local}%eth0", PICKER_PORT)


@pytest.mark.row("000.03")
def test_engines_reach_nobody(site: Site, cluster: Cluster, places: dict[str, Replica]) -> None:
    """Tried where everybody is let in: the gateway's listener, and the API server."""
    listener = listener_port(site)
    api_server = present(spec_of(cluster.core.read_namespaced_service("kubernetes", "default")).cluster_ip)
    assert connects(cluster, places["picker"], places["envoy"], listener)
    assert not connects(cluster, places["engine"], places["envoy"], listener)
    assert not reaches(cluster, places["engine"], api_server, 443)
    assert reaches(cluster, places["picker"], api_server, 443)


def test_engines_mount_no_token(cluster: Cluster) -> None:
    for model in (MODEL, OTHER):
        for pod in cluster.core.list_namespaced_pod(
            MODELS, label_selector=f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={model}"
        ).items:
            projected = [volume.name for volume in spec_of(pod).volumes or () if volume.projected]
            assert projected == [], name_of(pod)
