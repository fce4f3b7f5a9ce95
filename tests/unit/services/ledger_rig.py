"""The ledger as a process beside a real PostgreSQL, and what an Envoy's access log has."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from services.ledger.variables import FILES, ROWS_PATH, TOKEN_HEADER
from tests.unit.services.postgres_rig import Server, Service, served, setting, write_files

OPERATOR, WRITER = "token-of-the-operator", "token-of-the-writer"
DECEMBER, JANUARY = 1_796_083_200, 1_798_761_600
"""2026-12-01 and 2027-01-01, UTC."""
BOOK: dict[str, Any] = {
    "currency": "EUR",
    "versions": [
        {
            "from": 0,
            "models": {"chat": {"input": 200_000, "cached_input": 50_000, "output": 800_000}},
            "tiers": {"batch": 500_000},
        }
    ],
}


def line(**fields: Any) -> dict[str, Any]:
    """What Envoy writes of a request."""
    usual = {
        "id": str(uuid.uuid4()),
        "started": "1795000000.000001",
        "client": "search.ci",
        "objective": "interactive.chat",
        "model": "chat",
        "path": "/v1/chat/completions",
        "status": 200,
        "stream_error": None,
        "details": "via_upstream",
        "flags": "-",
        "duration_ms": 1234,
        "ttft_ms": 81.5,
        "itl_ms": 7.25,
        "input_tokens": 1000,
        "cached_input_tokens": 400,
        "output_tokens": 100,
        "reasoning_tokens": 0,
        "attempts": 1,
        "replica": "10.0.0.7:8000",
        "prompt_id": None,
        "trace_id": "-",
        "revision": None,
    }
    return usual | fields


def written(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(fields).encode() + b"\n" for fields in lines)


class Ledger(Service):
    """The service as a process."""

    def __init__(self, folder: Path, *more: str) -> None:
        files = [word for option in FILES for word in (option, str(setting(folder, option)))]
        super().__init__(folder, "ledger", ["serve", *files, *more])

    def client(self, token: str = OPERATOR) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={TOKEN_HEADER: token}, timeout=40)

    def send(self, *lines: dict[str, Any]) -> dict[str, int]:
        with self.client(WRITER) as client:
            answer = client.post(ROWS_PATH, content=written(*lines))
        assert answer.status_code == 200, answer.text
        counts: dict[str, int] = answer.json()
        return counts


class Shipper(Service):
    """The shipper of one log as a process."""

    def __init__(
        self, folder: Path, log_file: Path, ledger_url: str, admin_url: str, rotate_bytes: int, *more: str
    ) -> None:
        arguments = ["ship", "--log", str(log_file), "--ledger-url", ledger_url, "--admin-url", admin_url]
        arguments += ["--token-file", str(setting(folder, "--writer-token-file"))]
        arguments += ["--rotate-bytes", str(rotate_bytes), *more]
        super().__init__(folder, "ledger", arguments, port_option="--metrics-port")

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics").text
        return sum(float(row.split()[-1]) for row in text.splitlines() if row.startswith(name))


class EmulatedEnvoy:
    """Appends to a log as Envoy does: in pieces that end anywhere, and it opens the file again when it is asked to."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        self.path, self.ids = path, list[str]()
        self.reopens = 0
        self._choose = random.Random(seed)  # noqa: S311 - a repeatable choice
        self._lock = threading.Lock()
        self._file = path.open("ab", buffering=0)
        envoy = self

        class Admin(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with envoy._lock:
                    if self.path == "/reopen_logs":
                        envoy.reopen()
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._admin = ThreadingHTTPServer(("127.0.0.1", 0), Admin)
        threading.Thread(target=self._admin.serve_forever, daemon=True).start()

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self._admin.server_port}"

    def reopen(self) -> None:
        self._file.close()
        self._file = self.path.open("ab", buffering=0)
        self.reopens += 1

    def write(self, *lines: dict[str, Any]) -> None:
        text = written(*lines)
        with self._lock:
            self.ids += [fields["id"] for fields in lines]
            cut = self._choose.randrange(len(text))
            self._file.write(text[:cut])
            self._file.write(text[cut:])

    def die(self, torn: bytes = b"") -> None:
        """In the middle of a line; the next one appends to the same file."""
        with self._lock:
            self._file.write(torn)
            self._file.close()
            self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        self._admin.shutdown()
        self._admin.server_close()
        self._file.close()


def write_settings(folder: Path, url: str, book: dict[str, Any] = BOOK) -> None:
    """The files that a pod of the ledger has mounted."""
    write_files(folder, dict(zip(FILES, (url, json.dumps(book), WRITER, OPERATOR), strict=True)))


@contextmanager
def running(folder: Path, *more: str) -> Iterator[tuple[Server, Ledger]]:
    """Both, which end with the block. more: options of the ledger."""
    with served(folder, Ledger(folder, *more), partial(write_settings, folder)) as both:
        yield both
