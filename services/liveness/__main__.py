"""`python -m services.liveness`: answers the liveness probe of the engine beside it. Started by its pod alone.

200 while the engine answers and takes steps, or has nothing to do; 503 with the reason otherwise. Each question looks
at the engine once, so there is nothing here that can stop by itself.
"""

from __future__ import annotations

import argparse
import http.client
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer

from services.liveness.progress import EngineProgress

# Two of them are within the time that the kubelet waits for an answer.
_LOOK_S = 2.0
# A front end that is busy with long prompts answers late; as long as its engine takes steps, that is no hang.
SILENCE_S = 60.0
# The engine itself and no proxy of the pod's environment.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetched(url: str) -> str:
    """Body of an answer that is a success. Raises OSError for any other, and for none in time."""
    try:
        with _OPENER.open(url, timeout=_LOOK_S) as answer:
            return str(answer.read().decode(errors="replace"))
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class StallWatch:
    """Judges one engine by what it answers."""

    def __init__(
        self,
        *,
        stall_s: float,
        health: str,
        metrics: str,
        fetch: Callable[[str], str] = fetched,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stall_s, self._health, self._metrics = stall_s, health, metrics
        self._fetch, self._clock = fetch, clock
        self._progress = EngineProgress()
        self._answered = clock()

    def verdict(self) -> str:
        """What is wrong with the engine; empty while it lives."""
        try:
            self._fetch(self._health)
            text = self._fetch(self._metrics)
        except OSError as error:
            silent = self._clock() - self._answered
            return f"no answer for {silent:.0f} s: {error}" if silent > SILENCE_S else ""
        self._answered = now = self._clock()
        still = self._progress.see(text, now)
        if still is None or still.seconds <= self._stall_s:
            return ""
        rank = f" on rank {still.engine}" if still.engine else ""
        return f"no step for {still.seconds:.0f} s with {still.requests:.0f} requests{rank}"


def server(port: int, watch: StallWatch) -> HTTPServer:
    """Answers any GET. Requests come one after the other, so looks never overlap."""
    ending = ""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            nonlocal ending
            wrong = watch.verdict()
            if wrong and not ending:
                sys.stderr.write(f"the engine is to be restarted: {wrong}\n")
            ending = wrong
            body = (wrong or "alive").encode()
            self.send_response(503 if wrong else 200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not a line for each probe."""

    return HTTPServer(("", port), Handler)


def main(arguments: Sequence[str]) -> None:
    """Serve until the pod ends."""
    parser = argparse.ArgumentParser(prog="liveness", description=__doc__)
    parser.add_argument("--engine", required=True, help="address of the engine, without a path")
    parser.add_argument("--health", required=True, help="path that answers 200 while the engine is well")
    parser.add_argument("--stall-s", type=float, required=True, help="longest time without a step")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args(arguments)
    watch = StallWatch(stall_s=given.stall_s, health=f"{given.engine}{given.health}", metrics=f"{given.engine}/metrics")
    # The first process of a container has no default for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server(given.port, watch).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
