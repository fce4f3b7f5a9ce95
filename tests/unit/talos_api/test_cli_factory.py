"""`factory`: schematics from stdin, and what an image factory answers."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import yaml

from talos.cli import factory
from talos.cli.failures import Exit
from talos.cli.main import main
from talos.factory.schematic import Schematic

SCHEMATIC = {
    "customization": {
        "extraKernelArgs": ["iommu=pt"],
        "meta": [{"key": 10, "value": "x"}],
        "systemExtensions": {"officialExtensions": ["siderolabs/util-linux-tools", "siderolabs/iscsi-tools"]},
        "bootloader": "sd-boot",
        "secureboot": {"enrollKeys": "force"},
    }
}


class Factory(BaseHTTPRequestHandler):
    """An image factory as far as it is asked."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._answer(201, {"id": hashlib.sha256(body).hexdigest()})

    def do_GET(self) -> None:
        listed = [
            {"name": "siderolabs/iscsi-tools", "ref": "x:v0.2.0"},
            {"name": "siderolabs/util-linux-tools", "ref": "x:2"},
        ]
        self._answer(200, listed)

    def _answer(self, code: int, content: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Factory)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def ask_factory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], document: object, *argv: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(yaml.safe_dump(document)))
    code = main(["factory", *argv])
    shown = capsys.readouterr()
    return code, shown.out or shown.err


def test_factory_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], site: str) -> None:
    schematic = factory.schematic_of(yaml.safe_dump(SCHEMATIC))
    assert (
        schematic.document()
        == Schematic(
            extensions=("siderolabs/iscsi-tools", "siderolabs/util-linux-tools"),
            kernel_args=("iommu=pt",),
            meta=schematic.meta,
            bootloader="sd-boot",
            secure_boot=schematic.secure_boot,
        ).document()
    )
    assert (schematic.meta[0].key, schematic.secure_boot.enroll_keys) == (10, "force")
    for argv in (["id"], ["post", "--factory", site]):
        code, shown = ask_factory(monkeypatch, capsys, SCHEMATIC, *argv)
        assert (code, json.loads(shown)["id"]) == (0, schematic.id)
    code, shown = ask_factory(monkeypatch, capsys, SCHEMATIC, "links", "--talos-version", "v1.13.9", "--factory", site)
    assert json.loads(shown)["installer"].endswith(f"/metal-installer/{schematic.id}:v1.13.9")
    code, shown = ask_factory(monkeypatch, capsys, SCHEMATIC, "check", "--talos-version", "v1.13.9", "--factory", site)
    assert json.loads(shown)["extensions"]["siderolabs/iscsi-tools"] == "v0.2.0"


def test_factory_refusals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], site: str) -> None:
    missing = {"customization": {"systemExtensions": {"officialExtensions": ["siderolabs/iscsi-tool"]}}}
    check = ["check", "--talos-version", "v1.13.9", "--factory", site]
    code, shown = ask_factory(monkeypatch, capsys, missing, *check)
    assert code == Exit.REFUSED
    assert "did you mean siderolabs/iscsi-tools" in shown
    assert ask_factory(monkeypatch, capsys, {}, "links", "--talos-version", "1.13")[0] == Exit.USAGE
    assert ask_factory(monkeypatch, capsys, {}, "post", "--factory", "ftp://x")[0] == Exit.USAGE
    unusable: list[Any] = [{"customisation": {}}, {"customization": {"meta": 5}}, {"customization": []}, ["x"]]
    for document in unusable:
        assert ask_factory(monkeypatch, capsys, document, "id")[0] == Exit.USAGE, document
