"""A registry in this process that answers for blobs as CNCF Distribution's does: tests/lab compares the two."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "site", "registry-password"
SERVICE = "weights"
MESSAGES = {
    "UNAUTHORIZED": "authentication required",
    "BLOB_UNKNOWN": "blob unknown to registry",
}


@dataclass(frozen=True)
class Asked:
    """A request, as far as an answer hangs on it."""

    path: str
    range_: str = ""
    authorization: str = ""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    """The connection ends after so many bytes of the body."""


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def error(status: int, code: str, headers: Mapping[str, str] | None = None) -> Answer:
    """As the specification has it."""
    body = json.dumps({"errors": [{"code": code, "message": MESSAGES.get(code, "refused"), "detail": None}]})
    return Answer(status, body.encode(), headers or {})


@dataclass
class EmulatedRegistry:
    """Repositories with their blobs, a token service at /token, and what was asked of both."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Blobs by digest, by the repository's name."""
    guard: Literal["", "basic", "token"] = ""
    """What a request for a blob needs."""
    anonymous: bool = False
    """Whether tokens are given out without a login."""
    realm: str = ""
    """Address that tokens are given out at; empty for this server's own."""
    issue: Callable[[str], str] | None = None
    """A token for a scope; the default makes one up, which this registry knows."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Scope by token that is in force."""
    store: str = ""
    """Address of another server, which blobs are redirected to."""
    instead: Callable[[Asked], Answer | None] = lambda _: None
    """The answer to a request, where it is another one than usual."""
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def push(self, repository: str, *files: bytes) -> None:
        """A blob of each file."""
        self.repositories.setdefault(repository, {}).update({digest(data): data for data in files})

    def ranges(self, data: bytes) -> list[str]:
        """Of each request for this file, in order."""
        return [asked.range_ for asked in self.asked if asked.path.endswith(digest(data))]

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        other = self.instead(asked)
        if other is not None:
            return other
        if asked.path.startswith("/token"):
            return self._token(asked)
        repository, _, blob = urlsplit(asked.path).path.removeprefix("/v2/").partition("/blobs/")
        return self._guarded(repository, asked) or self._blob(repository, blob, asked)

    def _guarded(self, repository: str, asked: Asked) -> Answer | None:
        scope = f"repository:{repository}:pull"
        if self.guard == "basic" and asked.authorization != basic(USER, PASSWORD):
            return error(401, "UNAUTHORIZED", {"WWW-Authenticate": f'Basic realm="{SERVICE}"'})
        granted = self.tokens.get(asked.authorization.removeprefix("Bearer "))
        if self.guard == "token" and granted != scope:
            wanted = f'Bearer realm="{self.realm or self.url + "/token"}",service="{SERVICE}",scope="{scope}"'
            wrong = "" if not asked.authorization else "invalid_token" if not granted else "insufficient_scope"
            return error(401, "UNAUTHORIZED", {"WWW-Authenticate": wanted + (f',error="{wrong}"' if wrong else "")})
        return None

    def _token(self, asked: Asked) -> Answer:
        if asked.authorization != basic(USER, PASSWORD) and (asked.authorization or not self.anonymous):
            return Answer(401, b"{}")
        (scope,) = parse_qs(urlsplit(asked.path).query)["scope"]
        if self.issue:
            return Answer(200, json.dumps({"token": self.issue(scope), "expires_in": 60}).encode())
        token = f"token-{len(self.tokens)}"
        self.tokens[token] = scope
        return Answer(200, json.dumps({"access_token": token, "expires_in": 60}).encode())

    def _blob(self, repository: str, blob: str, asked: Asked) -> Answer:
        data = self.repositories.get(repository, {}).get(blob)
        if data is None:
            return error(404, "BLOB_UNKNOWN")
        if self.store:
            return Answer(307, b"", {"Location": f"{self.store}{asked.path}?signature=1"})
        if not asked.range_:
            return Answer(200, data)
        begin = int(asked.range_.removeprefix("bytes=").rstrip("-"))
        if begin >= len(data):
            return Answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        return Answer(206, data[begin:], {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"})


@contextmanager
def serving(registry: EmulatedRegistry, identity: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Its address. identity: certificate chain and key, for TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = Asked(self.path, self.headers.get("Range", ""), self.headers.get("Authorization", ""))
            answer = registry.answer(asked)
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body[: answer.cut])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if identity:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*identity)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"http{'s' if identity else ''}://127.0.0.1:{server.server_port}"
    try:
        yield registry.url
    finally:
        server.shutdown()
        server.server_close()
