"""Each panel's query has an answer of a site under load; what the lab cannot show is named, with the reason."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import httpx
import pytest

from components.monitoring.dashboards.boards import BOARDS
from components.monitoring.dashboards.readings import Window, read_panels
from manifests import grafana
from tests.lab.site.measured import PORT, Prometheus
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("001.21", "001.23", "001.38", "002.09", "003.15", "003.16", "003.17")

# Who calls what; of two tiers.
CLIENTS = {"acme.laptop": "glm-5-1", "globex.batch": "qwen3-32b"}
NOT_IN_LAB: Mapping[str, frozenset[str]] = {
    board.name: frozenset(panel.title for panel in board.panels() if panel.not_in_lab) for board in BOARDS
}


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster) -> Prometheus:
    return Prometheus(cluster)


@contextmanager
def load(site: Site) -> Iterator[None]:
    """Streams of each client, one after the other, until it ends."""
    over = Event()

    def converse(client: str, model: str) -> None:
        prompt = "tell me more about the history of the city " * 40
        with site.http(key=site.front.keys[client]) as http:
            while not over.is_set():
                message = {"role": "user", "content": prompt}
                body = {"model": model, "messages": [message], "max_tokens": 40, "stream": True}
                with http.stream("POST", "/chat/completions", json=body) as answer:
                    assert answer.status_code == httpx.codes.OK
                    for _ in answer.iter_lines():
                        pass

    with ThreadPoolExecutor() as pool:
        conversations = [pool.submit(converse, *client) for client in CLIENTS.items() for _ in range(3)]
        try:
            yield
        finally:
            over.set()
        for conversation in conversations:
            conversation.result()


def without_data(prometheus: Prometheus) -> dict[str, frozenset[str]]:
    """Titles of the panels that show nothing, by dashboard."""
    window = Window(until_s=time.time(), length_s=120, step_s=15, rate_s=60)
    with httpx.Client(base_url=f"http://{prometheus.pod.ip}:{PORT}", trust_env=False, timeout=60) as client:
        return {
            name: frozenset(panel.title for panel in read_panels(client, text, window) if not panel.has_data)
            for name, text in grafana.dashboards().items()
        }


def test_each_panel_has_data_under_load_or_a_reason(site: Site, prometheus: Prometheus) -> None:
    unexplained: dict[str, frozenset[str]] = {}

    def all_there() -> bool:
        unexplained.clear()
        for name, titles in without_data(prometheus).items():
            unexplained.update({name: titles - NOT_IN_LAB[name]} if titles - NOT_IN_LAB[name] else {})
        return not unexplained

    with load(site):
        try:
            until(all_there, what="data in each panel")
        except AssertionError as late:
            raise AssertionError(f"no data: {unexplained}") from late


@pytest.mark.parametrize("name", ["hardware", "storage"])
def test_what_the_lab_does_not_have_is_not_measured(name: str, prometheus: Prometheus) -> None:
    """Or the reasons would be out of date."""
    assert without_data(prometheus)[name] == NOT_IN_LAB[name]
