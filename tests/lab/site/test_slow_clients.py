"""Clients that read 10 bytes per second, through the whole path: their answers wait in Envoy, and hold no engine."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import pytest

from tests.lab.site.raw_http import http1
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat

pytestmark = pytest.mark.row("004.01")

MODEL = "qwen3-32b"
CLIENTS = 200
TOKENS = 400
BYTES_A_SECOND = 10
# With the alternatives of each token an answer is far larger than what the kernel holds of a connection.
BODY = {**chat(MODEL, tokens=TOKENS, stream=True), "logprobs": True, "top_logprobs": 20}
# Envoy's own needs vary by so much.
NOISE_BYTES = 40 * 2**20


@dataclass(kw_only=True)
class SlowClient:
    """One request, and what was read of its answer."""

    connection: socket.socket
    read: bytearray = field(default_factory=bytearray)

    def sip(self) -> None:
        """As much as a second allows, if there is something."""
        if select.select([self.connection], [], [], 0)[0]:
            self.read += self.connection.recv(BYTES_A_SECOND)


def _request(site: Site, *, http2: bool) -> bytes:
    body = json.dumps(BODY).encode()
    if not http2:
        return http1(site.key, headers=b"Content-Type: application/json\r\n", body=body)
    protocol = h2.connection.H2Connection(h2.config.H2Configuration())
    protocol.initiate_connection()
    names = {":method": "POST", ":path": "/v1/chat/completions", ":scheme": "http", ":authority": "models"}
    protocol.send_headers(1, [*names.items(), ("authorization", f"Bearer {site.key}")])
    protocol.send_data(1, body, end_stream=True)
    return bytes(protocol.data_to_send())


@contextmanager
def _slow_clients(site: Site, *, http2: bool) -> Iterator[list[SlowClient]]:
    url = urlsplit(site.address)
    with ExitStack() as stack:
        clients = []
        for _ in range(CLIENTS):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((url.hostname, url.port or 80))
            connection.sendall(_request(site, http2=http2))
            clients.append(SlowClient(connection=connection))
        yield clients


def _answer_bytes(site: Site) -> int:
    with site.http() as client:
        return len(client.post("/chat/completions", json=BODY).raise_for_status().content)


def _held(cluster: Cluster) -> int:
    """Bytes that the Envoys have allocated."""
    memory: list[dict[str, Any]] = [json.loads(cluster.envoy_admin(envoy, "/memory")) for envoy in cluster.envoys()]
    return sum(int(usage["allocated"]) for usage in memory)


@pytest.mark.exhaustive
@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_slow_clients_hold_no_engine(site: Site, cluster: Cluster, *, http2: bool) -> None:
    """Engines are free as soon as they have generated; Envoy holds the answers, and no more, until clients go."""
    size, before = _answer_bytes(site), _held(cluster)
    served = sum(replica.served() for replica in cluster.ready_replicas(MODEL))
    most = 0
    with _slow_clients(site, http2=http2) as clients:

        def answered() -> bool:
            nonlocal most
            for client in clients:
                client.sip()
            most = max(most, _held(cluster))
            # The pace of the readers.
            time.sleep(1)
            ended = sum(replica.served() for replica in cluster.ready_replicas(MODEL)) - served
            return ended >= CLIENTS and all(client.read for client in clients)

        until(answered, what="engines that have ended all requests")
        assert max(len(client.read) for client in clients) < size / 10, "they were not slow"
        assert not any(replica.under_way() for replica in cluster.ready_replicas(MODEL))
        most = max(most, _held(cluster))
        with site.http() as others:
            assert others.post("/chat/completions", json=chat(MODEL)).status_code == 200
    assert most - before > CLIENTS * size / 2, "their answers waited elsewhere"
    # A token's few hundred bytes take a slice of their own: 2.5 times the answers were seen.
    assert most - before < 4 * CLIENTS * size + NOISE_BYTES
    until(lambda: _held(cluster) < before + NOISE_BYTES, what="memory given back by Envoy")
