"""`python -m lab.hub HOST:PORT FAULTS`: the emulated hub until SIGTERM. FAULTS: a JSON file that may appear."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from lab.hub.server import EmulatedHubServer, Hub


def main(address: str, faults: str) -> int:
    host, _, port = address.rpartition(":")
    server = EmulatedHubServer(Hub(faults_file=Path(faults)), host, int(port))
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    stopping.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
