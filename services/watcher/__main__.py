"""`python -m services.watcher`: started by its pod alone, with what the program writes for it."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence

import httpx2
from prometheus_client import start_http_server

from services.watcher import variables
from services.watcher.settings import settings_of
from services.watcher.sources import ApiServerSource, PrometheusSource, in_pod
from services.watcher.watch import NodeWatch


def main(arguments: Sequence[str]) -> None:
    """Watch until the pod ends."""
    parser = argparse.ArgumentParser(prog="python -m services.watcher", description=__doc__)
    parser.add_argument("--settings", required=True, help="JSON, as services/watcher/settings.py has it")
    parser.add_argument("--namespace", required=True, help="of the Lease that holds the last drain")
    parser.add_argument("--port", type=int, default=variables.PORT, help="of metrics; default: %(default)s")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    # A line for each request would hide the others.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    settings = settings_of(given.settings)
    # The first process of a container has no default for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    start_http_server(given.port)
    prometheus = PrometheusSource(httpx2.Client(base_url=settings.prometheus, trust_env=False), settings)
    watcher = NodeWatch(settings, prometheus, ApiServerSource(in_pod(), settings, given.namespace))
    while True:
        watcher.look(time.time(), time.monotonic())
        time.sleep(variables.EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1:])
