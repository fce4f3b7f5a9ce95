"""The pinned Envoy by itself, on a free port, for what of its configuration needs no site."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from lab.install import install
from lab.paths import Lab
from tests.lab.waiting import PATIENCE_S

ANYWHERE = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
_NETWORK = "type.googleapis.com/envoy.extensions.filters.network"


def listening(manager: Mapping[str, Any], **resources: Any) -> dict[str, Any]:
    """Configuration with one listener, of this HTTP connection manager. resources: further static ones."""
    connections = {
        "@type": f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        **manager,
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}]
    listener = {"name": "test", "address": ANYWHERE, "filter_chains": [{"filters": filters}]}
    return {"admin": {"address": ANYWHERE}, "static_resources": {"listeners": [listener], **resources}}


@contextmanager
def envoy_with(configuration: Mapping[str, Any], folder: Path) -> Iterator[httpx.Client]:
    """A client of its listener. No script of it may fail meanwhile."""
    lab = Lab.from_environment()
    install(lab, ["envoy"])
    (folder / "envoy.yaml").write_text(json.dumps(configuration))
    admin = folder / "admin"
    argv: list[str | Path] = [lab.bin / "envoy", "-c", folder / "envoy.yaml", "--admin-address-path", admin]
    # Its own of access logs is 10 s.
    argv += ["--concurrency", "1", "--disable-hot-restart", "--file-flush-interval-msec", "100"]
    log = folder / "log"
    with log.open("wb") as output:
        envoy = subprocess.Popen(argv, stdout=output, stderr=output)
    try:
        with httpx.Client(base_url=f"http://{_address(envoy, admin, log)}", trust_env=False, timeout=60) as client:
            yield client
        assert "script log" not in log.read_text(), "the script failed in Envoy"
    finally:
        envoy.terminate()
        envoy.wait(timeout=60)


def _address(envoy: subprocess.Popen[bytes], admin: Path, log: Path) -> str:
    """Where Envoy listens, which it says once it serves."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert envoy.poll() is None, log.read_text()
        if admin.exists() and (at := admin.read_text()):
            url = f"http://{at}/listeners"
            # It writes the address before it reads the rest of its configuration, which may be wrong.
            with contextlib.suppress(httpx.TransportError):
                listeners = httpx.get(url, params={"format": "json"}, trust_env=False, timeout=60).json()
                if statuses := listeners.get("listener_statuses"):
                    socket = statuses[0]["local_address"]["socket_address"]
                    return f"{socket['address']}:{socket['port_value']}"
        time.sleep(0.1)
    raise AssertionError(log.read_text())
