"""Which answers of an API server the stand-in treats as temporary, against a scripted HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.errors import ApiError
from lab.plugins.kubernetes.objects import GroupVersionKind

pytestmark = pytest.mark.row("C.04")

SERVICE = GroupVersionKind("", "v1", "Service")
SERVED = {"resources": [{"kind": "Service", "name": "services", "namespaced": True, "verbs": ["create"]}]}


@dataclass
class ScriptedServer:
    """Answers a create with each of `refusals` once, in turn, and then takes it."""

    refusals: list[tuple[int, str]] = field(default_factory=list)
    creates: int = 0

    def answer(self, method: str) -> tuple[int, Any]:
        if method == "GET":
            return 200, SERVED
        self.creates += 1
        if not self.refusals:
            return 201, {"kind": "Service", "metadata": {"name": "picker"}}
        status, message = self.refusals.pop(0)
        return status, {"kind": "Status", "reason": "InternalError", "message": message}


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


@pytest.fixture
def cluster(server: ScriptedServer) -> Iterator[Cluster]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = server.answer(self.command)
            payload = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = _answer  # noqa: N815 - the names that the library looks for

        def log_message(self, *_: Any) -> None:
            """Tests stay quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        kubeconfig = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{http.server_port}"}}],
            "users": [{"name": "me", "user": {}}],
        }
        yield Cluster(kubeconfig, threading.Event(), first_pause_s=0.001)
        http.shutdown()


UNREADY = (
    "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Parameter'"
)


def create(cluster: Cluster) -> Any:
    return cluster.create(SERVICE, {"metadata": {"name": "picker"}}, "models", manager="test", dry_run=False)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "etcdserver: leader changed"),
        (500, 'failed to allocate a serviceIP for Service "picker": range is full'),
        (403, f"denied request: {UNREADY}"),
        (503, "apiserver is shutting down"),
        (429, "storage is (re)initializing"),
    ],
)
def test_what_an_api_server_says_while_it_starts_or_ends_is_asked_again(
    server: ScriptedServer, cluster: Cluster, status: int, message: str
) -> None:
    server.refusals = [(status, message)] * 2
    assert create(cluster)["metadata"]["name"] == "picker"
    assert server.creates == 3


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "it is broken"),
        (500, 'failed calling webhook "validate": connect: connection refused'),
        (422, "spec.ports: required"),
        (403, "no"),
    ],
)
def test_what_does_not_pass_is_said_at_once(
    server: ScriptedServer, cluster: Cluster, status: int, message: str
) -> None:
    server.refusals = [(status, message)] * 2
    with pytest.raises(ApiError, match=message):
        create(cluster)
    assert server.creates == 1
