"""CNCF Distribution's registry: its command line and configuration, and one that runs while a test needs it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

from lab.errors import LabError
from lab.paths import Lab

PORT = 5000
_ANSWERS_WITHIN_S = 30.0
_POLL_S = 0.05
# One that wants a login is up too.
_ANSWERS = (httpx.codes.OK, httpx.codes.UNAUTHORIZED)


def address(lab: Lab) -> str:
    """HOST:PORT of the registry of a lab that comes up from a bundle."""
    return f"{lab.network.registry}:{PORT}"


def config_file(folder: Path) -> Path:
    return folder / "config.yaml"


def write_config(folder: Path, address: str, auth: Mapping[str, Any] | None = None) -> None:
    """Of a registry that answers plain HTTP on HOST:PORT, and keeps everything below its folder.

    auth: who may read it, as its configuration has that; None for all.
    """
    config = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": address},
        **({"auth": dict(auth)} if auth else {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    config_file(folder).write_text(yaml.safe_dump(config, sort_keys=False))


def command(program: Path, config: Path) -> tuple[str, ...]:
    return (str(program), "serve", str(config))


@contextmanager
def running(program: Path, address: str, folder: Path, auth: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A registry on HOST:PORT with its files in a folder; it ends with the block, and its images stay in the folder.

    Raises LabError when it does not answer.
    """
    log = folder / "log"
    write_config(folder, address, auth)
    with log.open("ab") as output:
        process = subprocess.Popen(command(program, config_file(folder)), stdout=output, stderr=output)
    try:
        _wait(process, address, log)
        yield address
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _ANSWERS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(f"http://{address}/v2/", trust_env=False).status_code in _ANSWERS:
                return
        # Whatever it answers, it is not asked in a tight loop.
        time.sleep(_POLL_S)
    raise LabError(f"the registry at {address} does not answer", fix=f"read {log}")
