"""Vault's answers to what reads a key: a login by Kubernetes, a look at the token, an entry of a key-value engine.

As Vault's HTTP API documents them (auth/kubernetes, auth/token, secret/kv version 2). It takes the account's token by
what it states; Vault itself asks the API server.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.certificates import Authority

ISSUED = "token-of-the-server"


@dataclass
class Vault:
    """What it has, and whom it lets in."""

    address: str
    role: str
    audience: str
    account: str
    """Subject of the token, such as `system:serviceaccount:NAMESPACE:NAME`."""
    entries: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Path below /v1/ -> what the entry holds."""
    refused: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, token: str, sent: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Status and body."""
        if (method, path) == ("PUT", "auth/site/login"):
            return self._login(sent)
        if token != ISSUED:
            return 403, {"errors": ["permission denied"]}
        if path == "auth/token/lookup-self":
            return 200, {"data": {"type": "service", "ttl": 600, "expire_time": "2100-01-01T00:00:00Z"}}
        if path == "auth/token/revoke-self":
            return 204, {}
        if path in self.entries:
            return 200, {"data": {"data": self.entries[path], "metadata": {"version": 1}}}
        return 404, {"errors": []}

    def _login(self, sent: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        middle = str(sent.get("jwt")).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        stated = (sent.get("role"), claims["aud"], claims["sub"])
        if stated != (self.role, [self.audience], self.account):
            self.refused.append(str(stated))
            return 403, {"errors": ["permission denied"]}
        return 200, {"auth": {"client_token": ISSUED, "lease_duration": 600, "renewable": True}}


@contextmanager
def serving(vault: Vault, authority: Authority, folder: Path, port: int) -> Iterator[None]:
    """The server behind TLS, at the port of loopback that the address has."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length) or b"{}")
            path, token = self.path.removeprefix("/v1/").partition("?")[0], self.headers.get("X-Vault-Token") or ""
            status, body = vault.answer(self.command, path, token, sent)
            text = json.dumps(body).encode() if body else b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing: its requests hold tokens."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.identity(folder, "127.0.0.1"))
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
