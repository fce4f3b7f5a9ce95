"""A Prometheus that is simulated, behind the API server's proxy to it: it has what a test gives it."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.sitectl.site_with_service import AskedSite


class SimulatedPrometheus(ThreadingHTTPServer):
    """Answers every query, and takes each for one about a single metric."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)

    @abstractmethod
    def results(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        """Samples or series for these parameters of a query."""

    @contextmanager
    def on_a_site(self, folder: Path) -> Iterator[AskedSite]:
        """A checkout whose site has it."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        yield AskedSite(folder, "prometheus-operated", self.server_port, "", "inference-monitoring", 9090)
        self.shutdown()


class _Answering(BaseHTTPRequestHandler):
    server: SimulatedPrometheus

    def do_GET(self) -> None:
        asked = {key: value for key, (value,) in parse_qs(urlsplit(self.path).query).items()}
        answer = json.dumps({"status": "success", "data": {"result": self.server.results(asked)}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing."""
