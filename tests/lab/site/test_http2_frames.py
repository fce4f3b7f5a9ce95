"""HTTP/2 as no client speaks it: Envoy ends what floods it, keeps its memory, and serves everybody else meanwhile."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from urllib.parse import urlsplit

import hpack
import pytest

from tests.lab.site.raw_http import PATIENCE_S
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat

pytestmark = pytest.mark.row("004.11")

MODEL = "qwen3-32b"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Envoy ends a connection for far fewer frames of any of these kinds.
FRAMES = 100_000
AT_ONCE = 500
NOISE_BYTES = 40 * 2**20
QUESTION = json.dumps(chat(MODEL)).encode()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def head(key: str, *extra: tuple[str, str]) -> bytes:
    """A request's headers, as a frame's payload that leaves the table of headers alone."""
    names = {":method": "POST", ":path": "/v1/chat/completions", ":scheme": "http", ":authority": "models"}
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode([*names.items(), ("authorization", f"Bearer {key}"), *extra]))


def connect(site: Site) -> socket.socket:
    url = urlsplit(site.address)
    assert url.hostname is not None
    connection = socket.create_connection((url.hostname, url.port or 80), timeout=PATIENCE_S)
    connection.sendall(HELLO + frame(SETTINGS, 0, 0))
    return connection


def frames(connection: socket.socket) -> list[tuple[int, int, bytes]]:
    """Kind, stream and payload of all that comes until an answer has ended, or the connection."""
    received, seen = b"", []
    while piece := connection.recv(65_536):
        received += piece
        while len(received) >= 9 and len(received) >= (end := 9 + int.from_bytes(received[:3], "big")):
            kind, flags, stream = received[3], received[4], int.from_bytes(received[5:9], "big")
            seen.append((kind, stream, received[9:end]))
            received = received[end:]
            if kind in {DATA, HEADERS} and flags & END_STREAM:
                return seen
    return seen


@pytest.mark.parametrize(
    "extra",
    [("connection", "close"), ("X-Capital", "1"), (":path", "/metrics")],
    ids=["connection", "capital", "twice"],
)
def test_a_broken_request_ends_itself_alone(site: Site, extra: tuple[str, str]) -> None:
    """A proxy in front of us has the streams of many people on one connection."""
    with connect(site) as connection:
        connection.sendall(frame(HEADERS, END_HEADERS, 1, head(site.key)))
        connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 3, head(site.key, extra)))
        connection.sendall(frame(DATA, END_STREAM, 1, QUESTION))
        answered = frames(connection)
    assert [stream for kind, stream, _ in answered if kind == RESET] == [3], answered
    body = b"".join(payload for kind, stream, payload in answered if kind == DATA and stream == 1)
    assert json.loads(body)["model"] == MODEL


def _stream(number: int) -> int:
    return 2 * number + 1


FLOODS: dict[str, Callable[[bytes, int], bytes]] = {
    "rapid reset": lambda head, number: (
        frame(HEADERS, END_HEADERS, _stream(number), head) + frame(RESET, 0, _stream(number), struct.pack(">I", 8))
    ),
    "settings": lambda _, number: frame(SETTINGS, 0, 0, struct.pack(">HI", 1, number % 4096)),
    "ping": lambda _, __: frame(PING, 0, 0, b"12345678"),
    "priority": lambda _, number: frame(PRIORITY, 0, _stream(number % 50), struct.pack(">IB", 0, 10)),
    "continuation": lambda head, number: frame(CONTINUATION if number else HEADERS, 0, 1, b"" if number else head),
    "empty data": lambda head, number: frame(HEADERS, END_HEADERS, 1, head) if not number else frame(DATA, 0, 1),
}


def _held(cluster: Cluster) -> int:
    return sum(int(json.loads(cluster.envoy_admin(envoy, "/memory"))["allocated"]) for envoy in cluster.envoys())


def _is_ended_by(connection: socket.socket, flood: Callable[[bytes, int], bytes], first: bytes) -> bool:
    """Whether Envoy ends the connection; the kernel takes some frames after that."""
    try:
        for sent in range(0, FRAMES, AT_ONCE):
            connection.sendall(b"".join(flood(first, sent + number) for number in range(AT_ONCE)))
        while connection.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_floods_end_with_their_connection(site: Site, cluster: Cluster, flood: Callable[[bytes, int], bytes]) -> None:
    before, envoys = _held(cluster), cluster.envoys()
    with connect(site) as connection, site.http() as others:
        assert _is_ended_by(connection, flood, head(site.key)), "Envoy took them all"
        assert _held(cluster) < before + NOISE_BYTES
        assert others.post("/chat/completions", json=chat(MODEL)).status_code == 200
    assert [(envoy.uid, envoy.restarts) for envoy in cluster.envoys()] == [
        (envoy.uid, envoy.restarts) for envoy in envoys
    ]
