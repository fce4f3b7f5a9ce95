"""`python -m lab.hub HOST:PORT FAULTS [CHAIN KEY]`: the emulated hub until SIGTERM.

FAULTS: a JSON file that may appear. CHAIN, KEY: with them it speaks TLS.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from lab.hub.server import EmulatedHubServer, Hub


def main(address: str, faults: str, *identity: str) -> int:
    host, _, port = address.rpartition(":")
    files = (Path(identity[0]), Path(identity[1])) if identity else None
    server = EmulatedHubServer(Hub(faults_file=Path(faults)), host, int(port), identity=files)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    stopping.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
