"""Readers of a few bytes per second fill neither Envoy's memory nor the places of an engine.

The real Envoy with the platform's own actions, scaled down: answers of 20 MB, and a heap that few of them fill.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import httpx
import pytest

from components.gateway.gateway_overload import buffer_accounting, overload_actions
from lab.free_ports import free_ports
from lab.paths import Lab
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("004.01")
READERS = 24
PIECE, PIECES = b"x" * 100_000, 200
HEAP_BYTES = 150 * 2**20
# From this share on all of Envoy's actions are in force: what readers hold may stay anywhere below it.
SATURATED = 0.9
_ENVOY = "type.googleapis.com/envoy."
_FILTERS = f"{_ENVOY}extensions.filters"


class _Engine(BaseHTTPRequestHandler):
    """Answers 20 MB as fast as it is read; a short answer to GET."""

    protocol_version = "HTTP/1.1"
    asked = 0
    running = 0
    lock = threading.Lock()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_POST(self) -> None:
        self._count(1)
        try:
            self.send_response(200)
            self.send_header("content-length", str(len(PIECE) * PIECES))
            self.end_headers()
            for _ in range(PIECES):
                self.wfile.write(PIECE)
        except OSError:
            self.close_connection = True
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with _Engine.lock:
            _Engine.running += more
            _Engine.asked += max(more, 0)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # All readers come at once.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Envoy closes connections whose answers it drops: no error here."""


def _bootstrap(front: int, admin: int, engine: int, actions: list[dict[str, Any]]) -> dict[str, Any]:
    def at(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    manager = {
        "@type": f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "common_http_protocol_options": {"idle_timeout": "3600s"},
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_FILTERS}.http.router.v3.Router"}}
        ],
    }
    listener = {
        "name": "front",
        "address": at(front),
        "per_connection_buffer_limit_bytes": 64 * 2**20,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    ends = [{"lb_endpoints": [{"endpoint": {"address": at(engine)}}]}]
    cluster = {"name": "engine", "type": "STATIC", "load_assignment": {"cluster_name": "engine", "endpoints": ends}}
    heap = f"{_ENVOY}extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig"
    return {
        "admin": {"address": at(admin)},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
        "overload_manager": {
            "refresh_interval": "0.25s",
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.fixed_heap",
                    "typed_config": {"@type": heap, "max_heap_size_bytes": HEAP_BYTES},
                }
            ],
            "actions": actions,
            "buffer_factory_config": buffer_accounting(),
        },
    }


class _Front:
    def __init__(self, port: int, admin: int) -> None:
        self.port = port
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{admin}", trust_env=False, timeout=20)

    def up(self) -> bool:
        try:
            return self._client.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def held(self) -> int:
        """Bytes that Envoy has allocated."""
        return int(self._client.get("/memory").json()["allocated"])

    def serves(self) -> bool:
        return httpx.get(f"http://127.0.0.1:{self.port}/", trust_env=False, timeout=20).status_code == 200

    def reader(self, *, http2: bool) -> socket.socket:
        """A client that has asked and does not read yet."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.port))
        if not http2:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: front\r\nContent-Length: 0\r\n\r\n")
            return connection
        protocol = h2.connection.H2Connection(h2.config.H2Configuration())
        protocol.initiate_connection()
        names = {":method": "POST", ":path": "/", ":scheme": "http", ":authority": "front"}
        protocol.send_headers(1, list(names.items()), end_stream=True)
        connection.sendall(protocol.data_to_send())
        return connection


@contextmanager
def _running(lab: Lab, folder: Path) -> Iterator[_Front]:
    engine = _Server(("127.0.0.1", 0), _Engine)
    _Engine.asked = _Engine.running = 0
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    front, admin = free_ports(2)
    config = folder / "envoy.json"
    config.write_text(json.dumps(_bootstrap(front, admin, engine.server_port, overload_actions())))
    argv = [str(lab.bin / "envoy"), "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "off"]
    envoy = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        running = _Front(front, admin)
        eventually(running.up)
        yield running
    finally:
        envoy.kill()
        envoy.wait()
        engine.shutdown()


def _sip(readers: list[socket.socket]) -> None:
    """10 bytes of each answer."""
    for reader in readers:
        reader.settimeout(0.001)
        try:
            reader.recv(10)
        except OSError:
            continue


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_slow_readers_never_fill_envoys_heap(lab_of_tools: Lab, tmp_path: Path, *, http2: bool) -> None:
    """Their answers are three times what Envoy may hold; all the same it lets go of enough, and serves others."""
    with _running(lab_of_tools, tmp_path) as front, ExitStack() as stack:
        readers = [stack.enter_context(front.reader(http2=http2)) for _ in range(READERS)]

        def settled() -> bool:
            _sip(readers)
            return _Engine.asked == READERS and _Engine.running == 0 and front.held() < SATURATED * HEAP_BYTES

        eventually(settled)
        assert front.serves()
