"""How a gatekeeper follows its files and its directory, which is simulated here: it answers what a test gives it."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.free_ports import free_port
from lab.paths import Lab
from services.directory.variables import TOKEN_HEADER
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.34")

GOOD = {"id": "aaaaaaaaaa", "digest": "5e" * 32, "tenant": "acme", "name": "ci", "models": None}
FIRST = "first"
FULL = {"cursor": "e:1", "full": True}


class SimulatedDirectory(ThreadingHTTPServer):
    """Gives its answer to who has its token, and nothing new to a reader that has it."""

    token = FIRST
    answer: dict[str, Any] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)


class _Answering(BaseHTTPRequestHandler):
    server: SimulatedDirectory

    def do_GET(self) -> None:
        answer, known = self.server.answer, self.headers[TOKEN_HEADER] == self.server.token
        if answer and f"after={answer['cursor'].replace(':', '%3A')}" in self.path:
            answer = {"cursor": answer["cursor"], "full": False, "keys": []}
        self.send_response(200 if known and answer else 401)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Gatekeeper:
    """The program, with its files in a folder."""

    def __init__(self, program: Path, folder: Path, directory: str) -> None:
        self.folder, self.state = folder, free_port()
        (folder / "tenants").write_text(json.dumps({"tenants": {"acme": {"models": ["chat"]}}}))
        (folder / "keys").write_text(json.dumps({"keys": []}))
        (folder / "pepper").write_text("pepper")
        (folder / "salt").write_text("salt")
        (folder / "token").write_text(f"{FIRST}\n")
        files = {f"--{name}-file": folder / name for name in ("tenants", "keys", "pepper", "salt", "token", "kept")}
        options = {"--directory": directory, "--listen": f":{free_port()}", "--listen-state": f":{self.state}", **files}
        self.command = [str(program), *(f"{option}={value}" for option, value in options.items())]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=(self.folder / "log").open("ab"))

    def get(self, path: str, token: str = "") -> httpx.Response | None:
        try:
            url, headers = f"http://127.0.0.1:{self.state}{path}", {TOKEN_HEADER: token}
            return httpx.get(url, headers=headers, trust_env=False, timeout=60)
        except httpx.TransportError:
            return None

    def is_ready(self) -> bool:
        answer = self.get("/readyz")
        return answer is not None and answer.status_code == 200

    def keys(self, token: str = FIRST) -> list[str]:
        """Ids that it would give to another one."""
        answer = self.get("/v1/changes", token)
        assert answer is not None
        assert answer.status_code == 200
        return [key["id"] for key in answer.json()["keys"]]

    def figure(self, metric: str) -> float:
        answer = self.get("/metrics")
        assert answer is not None
        (value,) = re.findall(rf"^{metric} (\S+)$", answer.text, re.MULTILINE)
        return float(value)

    def write_keys(self, *tenants: str) -> None:
        """One key for each of these."""
        keys = [{"tenant": tenant, "name": "k", "digest": f"{number:064x}"} for number, tenant in enumerate(tenants)]
        (self.folder / "keys").write_text(json.dumps({"keys": keys}))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def directory() -> Iterator[SimulatedDirectory]:
    with SimulatedDirectory() as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


@pytest.fixture
def gatekeeper(lab_of_tools: Lab, tmp_path: Path, directory: SimulatedDirectory) -> Iterator[Gatekeeper]:
    program = Gatekeeper(lab_of_tools.bin / "gatekeeper", tmp_path, f"http://127.0.0.1:{directory.server_port}")
    yield program
    program.end()


def test_one_row_that_cannot_be_read_holds_up_no_other(gatekeeper: Gatekeeper, directory: SimulatedDirectory) -> None:
    """A key that changes into such a row does not go on working."""
    directory.answer = {**FULL, "keys": [GOOD, {**GOOD, "id": "bbbbbbbbbb", "digest": "short"}, None]}
    eventually(gatekeeper.is_ready)
    assert gatekeeper.keys() == [GOOD["id"]]
    directory.answer = {"cursor": "e:2", "full": False, "keys": [{**GOOD, "digest": 7}]}
    eventually(lambda: gatekeeper.keys() == [])


def test_what_it_knew_holds_after_a_start_without_the_directory(
    gatekeeper: Gatekeeper, directory: SimulatedDirectory
) -> None:
    directory.answer = {**FULL, "keys": [GOOD]}
    eventually(lambda: (gatekeeper.folder / "kept").exists())
    directory.answer = None
    gatekeeper.end()
    gatekeeper.start()
    eventually(gatekeeper.is_ready)
    assert gatekeeper.keys() == [GOOD["id"]]


def test_a_new_token_needs_no_start(gatekeeper: Gatekeeper, directory: SimulatedDirectory) -> None:
    """Both ways: for the directory, and for another gatekeeper that asks."""
    directory.answer = {**FULL, "keys": []}
    eventually(gatekeeper.is_ready)
    directory.token, directory.answer = "second", {"cursor": "e:2", "full": False, "keys": [GOOD]}
    (gatekeeper.folder / "token").write_text("second")
    eventually(lambda: gatekeeper.keys("second") == [GOOD["id"]])
    refused = gatekeeper.get("/v1/changes", FIRST)
    assert refused is not None
    assert refused.status_code == 401


def test_files_that_change_are_in_force_without_a_start(gatekeeper: Gatekeeper, directory: SimulatedDirectory) -> None:
    """Also for the directory's keys; and those that cannot be used leave what was before in force."""
    directory.answer = {**FULL, "keys": [GOOD]}
    eventually(gatekeeper.is_ready)
    assert gatekeeper.figure("gatekeeper_file_keys") == 0
    gatekeeper.write_keys("acme")
    eventually(lambda: gatekeeper.figure("gatekeeper_file_keys") == 1)
    gatekeeper.write_keys("acme", "unknown")
    eventually(lambda: gatekeeper.figure("gatekeeper_files_refused") == 1)
    assert gatekeeper.figure("gatekeeper_file_keys") == 1
    assert 'is of the tenant \\"unknown\\"' in (gatekeeper.folder / "log").read_text()
    (gatekeeper.folder / "tenants").write_text(json.dumps({"tenants": {"acme": {}, "unknown": {}}}))
    eventually(lambda: gatekeeper.figure("gatekeeper_file_keys") == 2)
    assert gatekeeper.figure("gatekeeper_files_refused") == 0
    assert gatekeeper.keys() == [GOOD["id"]]
    assert gatekeeper.process.poll() is None
