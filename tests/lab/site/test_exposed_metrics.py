"""What the running parts expose is what their lists have: alerts and dashboards are built on these."""

from __future__ import annotations

import subprocess

import pytest

from stacks.facts import metrics
from tests import exposition
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat, fresh_prompt

pytestmark = pytest.mark.row("002.09")

MODEL = "glm-5-1"
# Of a site that is measured: the AI gateway then counts for each client.
WHERE_MEASURED = frozenset({"client"})


@pytest.fixture(scope="module", autouse=True)
def requests(site: Site) -> None:
    """A whole answer, a stream and a refusal, after which every counter of requests is there."""
    with site.http() as client:
        for stream in (False, True):
            body = {**chat(MODEL, fresh_prompt(200)), "stream": stream}
            client.post("/chat/completions", json=body).raise_for_status()


def pods(cluster: Cluster, part: str) -> list[tuple[Replica, int, str]]:
    """Where a part exposes its metrics."""
    match part:
        case "simulator":
            return [(pod, 8000, "/metrics") for pod in cluster.replicas(MODEL)]
        case "endpoint_picker":
            return [(pod, 9090, "/metrics") for pod in cluster.pickers(MODEL)]
        case "envoy":
            return [(pod, 19001, "/stats/prometheus") for pod in cluster.envoys()]
        case _:
            return [(pod, 1064, "/metrics") for pod in cluster.envoys()]


def scraped(cluster: Cluster, part: str) -> list[str]:
    """What each pod exposes; nothing while one does not answer, as an Envoy that is being replaced."""
    try:
        return [
            cluster.run_in(pod, "curl", "-sS", "--fail", "--max-time", "20", f"http://{pod.ip}:{port}{path}")
            for pod, port, path in pods(cluster, part)
        ]
    except subprocess.CalledProcessError:
        return []


@pytest.mark.parametrize("part", ["simulator", "endpoint_picker", "envoy", "gateway_requests"])
def test_the_list_of_a_part_is_what_it_exposes(part: str, cluster: Cluster) -> None:
    exposed = exposition.union(until(lambda: scraped(cluster, part), what="an answer of each pod"))
    assert exposition.differences(metrics.load()[part], exposed, WHERE_MEASURED) == []
