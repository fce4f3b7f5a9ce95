"""Pebble, Let's Encrypt's small ACME server for tests: it asks DNS for the proof of a name, as a public one does."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from lab.paths import Lab
from tests.lab.site.authority import Authority
from tests.lab.waiting import eventually

_PORT, _MANAGEMENT_PORT = 14000, 15000


@dataclass(frozen=True, kw_only=True)
class AcmeServer:
    """Its directory, and the certificate in PEM that all that it issues leads to."""

    directory: str
    root: str


@contextmanager
def running(lab: Lab, folder: Path, address: str, authority: Authority, dns_port: int) -> Iterator[AcmeServer]:
    """Pebble at this address, with a certificate of this authority; it asks the DNS server at the same address."""
    certificate, key = authority.server_certificate(address)
    (folder / "pebble.crt").write_text(certificate)
    (folder / "pebble.key").write_text(key)
    settings = {
        "listenAddress": f"{address}:{_PORT}",
        "managementListenAddress": f"{address}:{_MANAGEMENT_PORT}",
        "certificate": str(folder / "pebble.crt"),
        "privateKey": str(folder / "pebble.key"),
        "keyAlgorithm": "ecdsa",
        "httpPort": 80,
        "tlsPort": 443,
    }
    (folder / "pebble.json").write_text(json.dumps({"pebble": settings}))
    command = [
        str(lab.bin / "pebble"),
        "-config",
        str(folder / "pebble.json"),
        "-dnsserver",
        f"{address}:{dns_port}",
        "-strict",
    ]
    # Else it waits up to 15 s before it asks, and asks for no new proof of a proven name in half of the orders.
    environment = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_AUTHZREUSE": "0"}
    with (
        (folder / "pebble.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            root = eventually(lambda: _root(f"https://{address}:{_MANAGEMENT_PORT}/roots/0", authority.trusting))
            yield AcmeServer(directory=f"https://{address}:{_PORT}/dir", root=root)
        finally:
            process.terminate()


def _root(url: str, trusting: ssl.SSLContext) -> str | None:
    try:
        return httpx.get(url, verify=trusting, trust_env=False).raise_for_status().text
    except httpx.TransportError:
        return None
