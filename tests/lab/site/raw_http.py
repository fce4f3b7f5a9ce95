"""Requests that no client library sends, as bytes, and the one answer that comes back."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events

# Far above what an answer takes, below the 25 s for which requests hung.
PATIENCE_S = 20


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Status 0 means that the connection ended without an answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def error(self) -> dict[str, Any]:
        """The error in OpenAI's form."""
        assert self.headers["content-type"].startswith("application/json"), self
        error = json.loads(self.body)["error"]
        assert {"message", "type", "param", "code"} <= error.keys()
        return dict(error)


def http1(
    key: str,
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    version: str = "1.1",
    headers: bytes = b"",
    body: bytes = b"{}",
    length: bool = True,
) -> bytes:
    """One HTTP/1 request."""
    head = f"{method} {path} HTTP/{version}\r\nHost: models\r\nAuthorization: Bearer {key}\r\n".encode()
    sized = f"Content-Length: {len(body)}\r\n".encode() if length else b""
    return head + headers + sized + b"\r\n" + body


def send(address: str, request: bytes) -> Answer:
    """The answer to these bytes. Raises TimeoutError when neither an answer nor the connection's end comes."""
    with _connect(address) as connection:
        connection.sendall(request)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
            if answer := _whole(received):
                return answer
    return _whole(received) or Answer(body=received)


def everything(address: str, request: bytes) -> bytes:
    """All bytes that come until the connection has been silent for a second, as with `HEAD`."""
    with _connect(address) as connection:
        connection.sendall(request)
        received = connection.recv(65_536)
        connection.settimeout(1)
        try:
            while piece := connection.recv(65_536):
                received += piece
        except TimeoutError:
            pass
        return received


def send_http2(address: str, key: str, *, body: bytes, trailers: list[tuple[str, str]]) -> Answer:
    """A completion over HTTP/2 whose body is followed by trailers."""
    names = {":method": "POST", ":path": "/v1/chat/completions", ":scheme": "http", ":authority": "models"}
    head = [*names.items(), ("authorization", f"Bearer {key}"), ("content-type", "application/json")]
    protocol = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    protocol.initiate_connection()
    protocol.send_headers(1, head)
    protocol.send_data(1, body, end_stream=not trailers)
    if trailers:
        protocol.send_headers(1, trailers, end_stream=True)
    headers: dict[str, str] = {}
    content = b""
    with _connect(address) as connection:
        connection.sendall(protocol.data_to_send())
        while piece := connection.recv(65_536):
            for event in protocol.receive_data(piece):
                if isinstance(event, h2.events.ResponseReceived):
                    headers = {str(name): str(value) for name, value in event.headers}
                elif isinstance(event, h2.events.DataReceived):
                    content += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    return Answer(status=int(headers[":status"]), headers=headers, body=content)
            connection.sendall(protocol.data_to_send())
    return Answer(headers=headers, body=content)


def _connect(address: str) -> socket.socket:
    url = urlsplit(address)
    assert url.hostname is not None
    return socket.create_connection((url.hostname, url.port or 80), timeout=PATIENCE_S)


def _whole(received: bytes) -> Answer | None:
    head, end, rest = received.partition(b"\r\n\r\n")
    if not end:
        return None
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = (field.partition(":") for field in fields)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length")
    if length is not None and len(rest) < int(length):
        return None
    if length is None and headers.get("transfer-encoding") == "chunked" and not rest.endswith(b"0\r\n\r\n"):
        return None
    return Answer(status=int(line.split()[1]), headers=headers, body=rest)
