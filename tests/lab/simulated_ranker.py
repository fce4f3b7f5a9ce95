"""Simulated: a model that ranks documents, as vLLM 0.32 answers at /v2/rerank; the engine simulator ranks nothing.

vLLM v0.32, entrypoints/pooling/scoring: protocol.py for the form, whose `usage` is in front of the results, and
serving.py for the count: each document is a prompt with the query. A word is a token here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

UNCOUNTED = "uncounted"
"""Field of a request whose answer has no `usage`, as of another engine."""
BILLED = "billed"
"""Field with what such an answer has as Cohere's own count, which the AI gateway reads."""
STATUS = "status"
"""Field with the status of its answer."""


def counted(asked: Mapping[str, Any]) -> int:
    """Tokens of a request."""
    return sum(len(asked["query"].split()) + len(document.split()) for document in asked["documents"])


def answered(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Body of the answer, which echoes the documents."""
    results = [
        {"index": at, "document": {"text": text, "multi_modal": None}, "relevance_score": 1 / (at + 1)}
        for at, text in enumerate(asked["documents"])
    ]
    usage = {} if UNCOUNTED in asked else {"usage": dict.fromkeys(("prompt_tokens", "total_tokens"), counted(asked))}
    meta = {"meta": {"tokens": {"input_tokens": asked[BILLED]}}} if BILLED in asked else {}
    return {"id": "score-1", "model": asked["model"], **usage, "results": results, **meta}


class Ranker(ThreadingHTTPServer):
    """What it was asked is kept."""

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), _Handler)
        self.asked: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Ranker

    def do_POST(self) -> None:
        length = self.headers["content-length"]
        asked = json.loads(self.rfile.read(int(length)) if length else b"".join(iter(self._chunk, b"")))
        self.server.asked.append({"path": self.path, **asked})
        body = json.dumps(answered(asked)).encode()
        self.send_response(asked.get(STATUS, 200))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chunk(self) -> bytes:
        """Envoy gives no length of a body that another one has written."""
        content = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return content

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def ranking(address: str = "127.0.0.1") -> Iterator[Ranker]:
    """One that answers at a free port of this address."""
    server = Ranker(address)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
