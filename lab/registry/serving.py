"""CNCF Distribution's registry: its command line and configuration, and one that runs while a test needs it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from lab.errors import LabError

_ANSWERS_WITHIN_S = 30.0
_POLL_S = 0.05


def write_config(file: Path, address: str, storage: Path) -> None:
    """Of a registry that answers plain HTTP on HOST:PORT, and keeps everything below a folder."""
    config = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": address},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(config, sort_keys=False))


def command(program: Path, config: Path) -> tuple[str, ...]:
    return (str(program), "serve", str(config))


@contextmanager
def running(program: Path, address: str, folder: Path) -> Iterator[str]:
    """A registry on HOST:PORT with its files in a folder; it ends with the block, and its images stay in the folder.

    Raises LabError when it does not answer.
    """
    config, log = folder / "config.yaml", folder / "log"
    write_config(config, address, folder / "storage")
    with log.open("ab") as output:
        process = subprocess.Popen(command(program, config), stdout=output, stderr=output)
    try:
        _wait(process, address, log)
        yield address
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _ANSWERS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"http://{address}/v2/", trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(_POLL_S)
    raise LabError(f"the registry at {address} does not answer", fix=f"read {log}")
