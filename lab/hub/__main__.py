"""`python -m lab.hub HOST:PORT FAULTS MODEL [--folder FOLDER] [--identity CHAIN KEY]`: the emulated hub until SIGTERM.

FAULTS: a JSON file that may appear. MODEL: a folder that may appear, whose files are then those of every model.
FOLDER: its models, and no others. CHAIN, KEY: with them it speaks TLS.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from lab.hub import held
from lab.hub.folder import files_of
from lab.hub.server import EmulatedHubServer, Hub


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lab.hub", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("faults", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--identity", type=Path, nargs=2)
    given = parser.parse_args(words)
    host, _, port = given.address.rpartition(":")
    content = files_of(given.folder) if given.folder else held.content_of(given.model)
    identity = tuple(given.identity) if given.identity else None
    hub = Hub(content=content, faults_file=given.faults, log=say)
    server = EmulatedHubServer(hub, host, int(port), identity=identity)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    stopping.wait()
    server.close()
    return 0


def say(line: str) -> None:
    """Write a line in one piece: requests are answered by several threads."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
