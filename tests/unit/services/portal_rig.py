"""The portal as a process, with an issuer, a real directory, and stand-ins for ledger and gateway."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock

from lab.free_ports import free_port
from services.ledger.variables import SIGNALS_PATH
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import OPERATOR, Directory
from tests.unit.services.postgres_rig import ROOT, Server, setting

CLIENT_SECRET, SESSION_SECRET, LEDGER_TOKEN = "secret-of-the-client", "secret-of-the-sessions", "token-of-the-ledger"
CHAT, EMBED = "qwen3-32b", "qwen3-embedding-8b"
ORDERABLE, TOO_LARGE = "glm-5-1", "kimi-k2-5"
ENDPOINT = "https://inference.example.com"
PEOPLE = {
    "ann": {"preferred_username": "ann", "groups": ["search-admins"]},
    "bob": {"preferred_username": "bob@example.com", "groups": ["search-people", "sales-people"]},
    "eve": {"preferred_username": "eve", "groups": ["sales-people"]},
    "opal": {"preferred_username": "opal", "groups": ["platform"]},
    "zoe": {"preferred_username": "zoe", "groups": ["others"]},
}
_PROOF = {
    "ttft_p95_s": 0.8,
    "itl_p95_ms": 31,
    "parallel": 64,
    "tokens_per_minute": 410000,
    "fidelity": "estimated",
}
_CHAT = {
    "title": "Qwen3 32B",
    "task": "generate",
    "context_tokens": 40960,
    "revision": "9216db5781bf21249d130ec9da846c4624c16137",
    "replicas": 2,
    "gpus": 4,
    "proof": _PROOF,
    "prices": [{"currency": "EUR", "input": 0.2, "cached_input": 0.05, "output": 0.8}],
}
_EMBED = _CHAT | {
    "title": "Qwen3 Embedding 8B",
    "task": "embed",
    "context_tokens": 32768,
    "gpus": 1,
    "proof": _PROOF | {"ttft_p95_s": 0.12, "itl_p95_ms": None, "parallel": 256, "tokens_per_minute": 2900000},
    "prices": [{"currency": "EUR", "input": 0.02, "cached_input": 0.02, "output": 0}],
}
_ORDERABLE = _CHAT | {
    "title": "GLM 5.1",
    "context_tokens": 202752,
    "revision": "",
    "gpus": 16,
    "prices": [{"currency": "EUR", "input": 0.9, "cached_input": 0.2, "output": 3.2}],
    "proof": _PROOF | {"ttft_p95_s": 2.1, "itl_p95_ms": 48, "parallel": 96, "tokens_per_minute": 260000},
    "verdict": "holds",
    "reasons": [],
    "weights_gb": 756.3,
    "ready_s": 2110,
    "latest_s": 15840,
    "cost_per_hour": 61.12,
    "currency": "EUR",
    "change": "models:\n  glm-5-1:\n    catalogue: glm-5.1-fp8\n    server:\n      replicas: 2\n",
}
_TOO_LARGE = {
    "title": "Kimi K2.5",
    "task": "generate",
    "context_tokens": 262144,
    "verdict": "fails",
    "reasons": ["1 of 2 replicas finds no room: each takes 8 GPUs of one node; 0 GPUs left beside the others"],
    "change": "models:\n  kimi-k2-5:\n    catalogue: kimi-k2.5\n",
}
CATALOGUE: dict[str, Any] = {
    "site": "berlin",
    "models": {CHAT: _CHAT, EMBED: _EMBED},
    "orderable": {ORDERABLE: _ORDERABLE, TOO_LARGE: _TOO_LARGE},
    "tenants": {
        "search": {
            "models": [CHAT, EMBED],
            "admins": ["search-admins"],
            "users": ["search-people"],
            "limits": {"tokens_per_minute": 100000},
            "budgets": {"tokens_per_month": 20_000_000, "spend_per_month": 4.5},
        },
        "sales": {"models": [CHAT], "users": ["sales-people"]},
    },
    "operators": ["platform"],
}


@dataclass
class Services:
    """What the stand-ins for gateway and ledger have seen, and how they answer."""

    url: str = ""
    keys: list[str] = field(default_factory=list)
    """Those that were sent to the gateway."""
    refusals: int = 0
    """How many of the next questions the gateway refuses, as it does before it has heard of a key."""
    broken: bool = False
    """Whether a stream ends in an error."""
    bills: list[str] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)
    """Of keys, as the ledger lists them."""


def _buckets(kind: str, query: dict[str, list[str]]) -> dict[str, Any]:
    start = int(query["start_time"][0])
    buckets = []
    for day in range(24):
        models = ((CHAT, "bob-laptop", 9), (CHAT, "ann-ci", 4), (EMBED, "ann-ci", 2))
        results: list[dict[str, Any]] = []
        for model, key, size in models:
            tokens = size * 10_000 * (1 + day * 7 % 5)
            if kind == "costs":
                counted: dict[str, Any] = {"amount": {"value": tokens * 4e-7, "currency": "eur"}}
            else:
                counted = {"input_tokens": tokens, "input_cached_tokens": tokens // 4, "output_tokens": tokens // 5}
                counted["num_model_requests"] = size * 10
            results.append({"model": model, "api_key_id": key, "project_id": query["project_ids"][0], **counted})
        buckets.append({"object": "bucket", "start_time": start + day * 86400, "results": results})
    return {"object": "page", "data": buckets, "has_more": False, "next_page": None}


def _handler(services: Services) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            if self.headers["x-ledger-token"] != LEDGER_TOKEN:
                self._answer(401, b"{}")
            elif place.path.startswith("/v1/bills/"):
                services.bills.append(self.path)
                self._answer(200, b"line,cost\n1,2.50\n", "text/csv")
            elif place.path == SIGNALS_PATH:
                self._answer(200, json.dumps({"thresholds": {}, "window_s": 600, "signals": services.signals}).encode())
            else:
                kind = place.path.rpartition("/")[2]
                self._answer(200, json.dumps(_buckets(kind, parse_qs(place.query))).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            services.keys.append(self.headers["authorization"].removeprefix("Bearer "))
            if "stream" not in asked:
                answer = {"choices": [{"message": {"content": "Hello you"}}], "data": [{"embedding": [0.5] * 4096}]}
                self._answer(200, json.dumps(answer | {"path": self.path}).encode())
                return
            assert self.headers["host"] == urlsplit(ENDPOINT).netloc
            if services.refusals:
                services.refusals -= 1
                self._answer(401, b'{"error": {"message": "unknown key"}}')
                return
            texts = ("Berlin ", "<b>has</b> ", "3.9 million people.")
            pieces: list[dict[str, Any]] = [{"choices": [{"delta": {"content": text}}]} for text in texts]
            if services.broken:
                pieces[1:] = [{"error": {"message": "the replica ended"}}]
            events = [f"data: {json.dumps(piece)}\n\n" for piece in pieces] + ["data: [DONE]\n\n"]
            self._answer(200, "".join(events).encode(), "text/event-stream")

        def _answer(self, status: int, body: bytes, media: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", media)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextmanager
def _serving(services: Services) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(services))
    services.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Browser(httpx.Client):
    """Sends forms as a person does. `landed`: where the log in ended."""

    landed = ""

    def send_form(self, path: str, *, at: str = "/", **fields: str) -> httpx.Response:
        """The form of a page of this person's, with their session's token."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.get(at).text)
        assert token, "no form on the page"
        return self.post(path, data={"csrf": token[1], "tenant": "search", **fields})


@dataclass
class Portal:
    """The process. `log` is what it wrote."""

    folder: Path
    directory: Directory
    services: Services
    issuer: str
    server: Server | None = None
    """The directory's database."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "portal.log"

    @property
    def catalogue(self) -> Path:
        return self.folder / "catalogue.json"

    def offer(self, catalogue: dict[str, Any]) -> None:
        """What `up` writes of a site, for portal and directory."""
        self.catalogue.write_text(json.dumps(catalogue))
        setting(self.folder, "--tenants-file").write_text(json.dumps({"tenants": catalogue["tenants"]}))

    def options(self, **others: str) -> list[str]:
        """Of the command line; others: those that differ."""
        secrets = {
            "client-secret": CLIENT_SECRET,
            "session-secret": SESSION_SECRET,
            "directory-token": OPERATOR,
            "ledger-token": LEDGER_TOKEN,
        }
        for name, text in secrets.items():
            (self.folder / name).write_text(f"{text}\n")
        urls = {"public-url": self.url, "issuer": self.issuer, "endpoint": ENDPOINT, "gateway": self.services.url}
        urls |= {"directory": f"http://127.0.0.1:{self.directory.port}", "ledger": self.services.url}
        files = {f"{name}-file": str(self.folder / name) for name in secrets}
        given = urls | files | {"client-id": "portal", "catalogue-file": str(self.catalogue), "port": str(self.port)}
        return [word for name, value in (given | others).items() for word in (f"--{name}", value)]

    def start(self, **others: str) -> None:
        command = [sys.executable, "-m", "services.portal", *self.options(**others)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.05)

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def client(self) -> Browser:
        return Browser(base_url=self.url, timeout=40, follow_redirects=True)

    def logged_in(self, person: str, then: str = "/") -> Browser:
        """A browser of this person, at the page that they wanted."""
        client = self.client()
        form = client.get("/login", params={"next": then})
        assert form.url.path == "/oauth2/authorize", form.text
        answer = client.post(form.url, data={"sub": person})
        assert answer.status_code in (200, 404), answer.text
        client.landed = str(answer.url)
        return client


@contextmanager
def running(folder: Path) -> Iterator[Portal]:
    """The portal and all that it needs, which end with the block."""
    users = [oidc_provider_mock.User(sub=name, claims=dict(claims)) for name, claims in PEOPLE.items()]
    services = Services()
    with ExitStack() as stack:
        server, directory = stack.enter_context(directory_rig.running(folder))
        stack.enter_context(_serving(services))
        issuer = stack.enter_context(oidc_provider_mock.run_server_in_thread(user_claims=users))
        portal = Portal(folder, directory, services, f"http://localhost:{issuer.server_port}", server)
        portal.offer(CATALOGUE)
        stack.callback(portal.end)
        portal.start()
        yield portal


def api(portal: Portal, person: str, address: str = "") -> httpx.Client:
    """For a program of this person's. address: what proxies noted of where it comes from."""
    headers = {"authorization": f"Bearer {token_of(portal, person)}"} | (
        {"x-forwarded-for": address} if address else {}
    )
    return httpx.Client(base_url=f"{portal.url}/api/v1", headers=headers, timeout=40)


def this_month() -> str:
    return f"{datetime.now(UTC):%Y-%m}"


def token_of(portal: Portal, person: str, client: str = "portal") -> str:
    """A token of the issuer for a client of this person's."""
    with httpx.Client(base_url=portal.issuer) as browser:
        query = {
            "client_id": client,
            "redirect_uri": "http://x.example/",
            "response_type": "code",
            "scope": "openid profile",
        }
        given = browser.post("/oauth2/authorize", params=query, data={"sub": person}).headers["location"]
        grant = {"grant_type": "authorization_code", "code": httpx.URL(given).params["code"]}
        grant |= {"redirect_uri": query["redirect_uri"]}
        answer = browser.post("/oauth2/token", data=grant, auth=(client, "x"))
    return str(answer.json()["id_token"])
