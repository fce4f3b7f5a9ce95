"""Pickers' metrics as a gatekeeper reads them, with figures that a test sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Filling = tuple[float, float, float]
"""Ready replicas, requests that wait and the share of the cache in use, on average."""


class Pickers(ThreadingHTTPServer):
    """Simulated: metrics of the pickers of several pools, as of v1.5.0."""

    def __init__(self, pools: Mapping[str, Filling]) -> None:
        super().__init__(("127.0.0.1", 0), _Metrics)
        self.pools, self.answers = dict(pools), True


class _Metrics(BaseHTTPRequestHandler):
    server: Pickers

    def do_GET(self) -> None:
        lines = []
        for place, name in enumerate(("ready_pods", "average_queue_size", "average_kv_cache_utilization")):
            lines.append(f"# TYPE inference_pool_{name} gauge")
            lines += [f'inference_pool_{name}{{name="{pool}"}} {of[place]}' for pool, of in self.server.pools.items()]
        self.send_response(200 if self.server.answers else 503)
        self.end_headers()
        self.wfile.write("\n".join([*lines, ""]).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def running_pickers(pools: Mapping[str, Filling]) -> Iterator[Pickers]:
    """Pool -> how full it is at first."""
    server = Pickers(pools)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
