"""A look of the watcher at an API server that refuses some of what it asks, and by a clock that is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from prometheus_client import REGISTRY

from components.monitoring import gpu_faults
from services.watcher.decision import Drain
from services.watcher.settings import NodeOffer, WatcherSettings
from services.watcher.sources import ApiServerSource, PrometheusSource
from services.watcher.variables import AGREE_S, FAULT, SERVICE
from services.watcher.watch import NodeWatch

pytestmark = pytest.mark.row("opening 25", "002.12")

GPU, XID, NOW = "nvidia.com/gpu", "xid-79", 1_000_000.0
SETTINGS = WatcherSettings(
    prometheus="",
    nodes={name: NodeOffer(resource=GPU, count=8, gpus=8) for name in ("hgx-1", "hgx-2")},
    may_lose=frozenset({"hgx-1", "hgx-2"}),
    faults=gpu_faults.FAULTS,
    measured=gpu_faults.MEASURED,
    joining=gpu_faults.FABRIC_JOINING,
    meanings=gpu_faults.MEANINGS,
    namespace="models",
    replicas="",
    drains=True,
    checks=False,
    load_tests=None,
    validator=None,
)


@dataclass
class Simulated:
    """Both sources: hgx-1 has a fault and offers 7 GPUs, hgx-2 has two replicas."""

    taints: dict[str, str] = field(default_factory=dict)
    lease: dict[str, Any] | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """End of a path -> status."""
    asked: list[str] = field(default_factory=list)

    def watcher(self) -> NodeWatch:
        """One that has just started."""
        client = httpx2.Client(transport=httpx2.MockTransport(self.answer), base_url="http://x")
        return NodeWatch(SETTINGS, PrometheusSource(client, SETTINGS), ApiServerSource(client, SETTINGS, "monitoring"))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method != "GET":
            self.asked.append(path)
        for end, status in self.refused.items():
            if path.endswith(end) and request.method != "GET":
                return httpx2.Response(status, json={})
        if path == "/api/v1/query":
            return httpx2.Response(200, json={"data": {"result": self._series(request)}})
        if path.endswith("/nodes"):
            return httpx2.Response(200, json={"items": [self._node("hgx-1", 7), self._node("hgx-2", 8)]})
        if path.endswith("/pods"):
            return httpx2.Response(200, json={"items": [_pod("chat-a"), _pod("chat-b")]})
        if path.endswith(SERVICE) and request.method == "GET":
            return httpx2.Response(200, json=self.lease) if self.lease else httpx2.Response(404)
        return httpx2.Response(200, json=self._node("hgx-1", 7))

    def _series(self, request: httpx2.Request) -> list[dict[str, Any]]:
        if "XID" in request.content.decode():
            return [{"metric": {"node": "hgx-1", "gpu": "0", "fault": XID}, "value": [0, "79"]}]
        return [{"metric": {"node": node}, "value": [0, "8"]} for node in SETTINGS.nodes]

    def _node(self, name: str, gpus: int) -> dict[str, Any]:
        taints = [{"key": FAULT, "value": self.taints[name]}] if name in self.taints else []
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {GPU: str(gpus)}}
        return {
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"taints": taints},
            "status": status,
        }


def _pod(name: str) -> dict[str, Any]:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {"nodeName": "hgx-2"}, "status": ready}


def _failed() -> float:
    return REGISTRY.get_sample_value("watcher_evictions_total", {"result": "failed"}) or 0


def _blind() -> float | None:
    return REGISTRY.get_sample_value("watcher_blind", {"source": "api-server"})


@pytest.mark.parametrize("status", [403, 409, 500])
def test_what_is_refused_keeps_nothing_else_from_being_done(status: int) -> None:
    cluster = Simulated(taints={"hgx-2": XID}, refused={"chat-a/eviction": status, "nodes/hgx-1": status})
    failed = _failed()
    watcher = cluster.watcher()
    watcher.look(NOW, 0)
    assert [path.split("/")[-2] for path in cluster.asked if path.endswith("eviction")] == ["chat-a", "chat-b"]
    assert (_failed() - failed, _blind()) == (1, 1)
    # Both sources have agreed since then nevertheless.
    cluster.taints.clear()
    assert Drain in map(type, watcher.look(NOW, AGREE_S))
    cluster.refused.clear()
    watcher.look(NOW, AGREE_S)
    assert _blind() == 0


def test_agreement_is_measured_by_a_clock_that_is_never_set() -> None:
    watcher = Simulated().watcher()
    watcher.look(NOW, 0)
    assert Drain not in map(type, watcher.look(NOW + 10 * AGREE_S, AGREE_S - 1))
    assert Drain in map(type, watcher.look(NOW - 10 * AGREE_S, AGREE_S))


@pytest.mark.parametrize("spec", [{"holderIdentity": "hgx-1"}, {"renewTime": "2026-01-01T00:00:00Z"}, None])
def test_a_lease_that_is_no_drain_of_the_watcher_is_no_answer(spec: Any) -> None:
    watcher = Simulated(lease={"metadata": {}, "spec": spec}).watcher()
    assert watcher.look(NOW, 0) == []
    assert _blind() == 1
