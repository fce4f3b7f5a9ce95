"""The shipper beside a ledger and a real PostgreSQL, of which each is killed, while lines are written and rotated."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.free_ports import free_port
from lab.install import parts, system
from services.ledger.variables import TOKEN_HEADER
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import EmulatedEnvoy, Ledger, Shipper, line
from tests.unit.services.postgres_rig import ROOT, Server, setting
from tests.unit.services.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35")]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path) as running:
        yield running


@pytest.fixture
def envoy(tmp_path: Path) -> Iterator[EmulatedEnvoy]:
    folder = tmp_path / "usage"
    folder.mkdir()
    own = EmulatedEnvoy(folder / "requests.jsonl")
    yield own
    own.close()


@pytest.fixture
def shipper(both: tuple[Server, Ledger], envoy: EmulatedEnvoy, tmp_path: Path) -> Iterator[Shipper]:
    own = Shipper(tmp_path, envoy.path, both[1].url, envoy.admin_url, rotate_bytes=50_000)
    yield own
    own.end(signal.SIGKILL)


def ids(server: Server) -> list[str]:
    return server.sql("SELECT id FROM requests ORDER BY id").stdout.split()


def sums(server: Server) -> tuple[str, str]:
    totals = "sum(input_tokens), sum(output_tokens), sum(cost_pico)"
    rows = server.sql(f"SELECT count(*), {totals} FROM requests").stdout  # noqa: S608 - names
    hours = server.sql(f"SELECT sum(requests), {totals} FROM usage_by_hour").stdout  # noqa: S608 - names
    return rows, hours


def test_the_table_has_exactly_what_was_written_whatever_is_killed(
    both: tuple[Server, Ledger], envoy: EmulatedEnvoy, shipper: Shipper
) -> None:
    server, ledger = both
    choose, ended = random.Random(7), threading.Event()  # noqa: S311 - a repeatable choice
    torn = 0

    def write() -> None:
        nonlocal torn
        number = 0
        while not ended.is_set():
            envoy.write(*(line(started=f"{1795000000 + number}.5", client=f"t{number % 3}.ci") for _ in range(20)))
            number += 1
            if number % 30 == 0:
                envoy.die(torn=json.dumps(line()).encode()[:300])
                torn += 1
            time.sleep(0.02)

    def restart(what: Server | Ledger) -> None:
        if isinstance(what, Server):
            what.kill()
        else:
            what.end(signal.SIGKILL)
        time.sleep(choose.uniform(0, 1))
        what.start()

    shipper.start()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(14):
            time.sleep(choose.uniform(0.2, 1.2))
            shipper.end(signal.SIGKILL)
            if turn % 3 == 1:
                restart(ledger)
            if turn % 5 == 2:
                restart(server)
            shipper.start()
        # On a slow machine a shipper lived too short a time to have a full file renamed.
        until(lambda: len(envoy.ids) > 3000 and torn > 3 and envoy.reopens > 3)
    finally:
        ended.set()
        writer.join()
    ledger.wait_ready()
    # The last one may not listen yet.
    eventually(lambda: shipper.metric("inference_usage_shipper_bytes_behind") == 0)
    assert shipper.end() == 0
    assert ids(server) == sorted(envoy.ids)
    rows, hours = sums(server)
    assert rows == hours
    assert list(envoy.path.parent.glob("requests.jsonl.[0-9]*")) == []


def test_a_shipper_that_ends_waits_for_a_database_that_is_away(
    both: tuple[Server, Ledger], envoy: EmulatedEnvoy, shipper: Shipper
) -> None:
    """And reports how far it is behind."""
    server, _ = both
    shipper.start()
    envoy.write(line())
    until(lambda: len(ids(server)) == 1)
    server.kill()
    envoy.write(*(line(started=f"{time.time() - 100:.6f}", duration_ms=40_000) for _ in range(300)))
    until(lambda: shipper.metric('inference_usage_shipper_failures_total{reason="503"}') > 2)
    assert shipper.metric("inference_usage_shipper_bytes_behind") > 100_000
    assert 55 < shipper.metric("inference_usage_shipper_oldest_seconds") < 100
    # It is split while nothing of it is taken.
    assert list(envoy.path.parent.glob("requests.jsonl.[0-9]*"))
    assert shipper.process is not None
    shipper.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        shipper.process.wait(2)
    server.start()
    assert shipper.process.wait(40) == 0
    assert ids(server) == sorted(envoy.ids)
    shipper.process = None


ENVOY = next(wheel for wheel in parts.WHEELS if wheel.name == "envoy")


@contextmanager
def envoy_running(folder: Path, log_file: Path) -> Iterator[tuple[str, str]]:
    """A real Envoy that answers by itself: its address, and its administration's."""
    port, admin = free_port(), free_port()

    def at(number: int) -> dict[str, Any]:
        return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": number}}}

    api = "type.googleapis.com/envoy.extensions"
    fields = line(id="%REQ(X-REQUEST-ID)%", started="%START_TIME(%s.%6f)%", status="%RESPONSE_CODE%")
    router = {"name": "router", "typed_config": {"@type": f"{api}.filters.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    connections = {
        "@type": f"{api}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "access_log": [
            {
                "name": "file",
                "typed_config": {
                    "@type": f"{api}.access_loggers.file.v3.FileAccessLog",
                    "path": str(log_file),
                    "log_format": {"json_format": fields},
                },
            }
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router],
    }
    filters = [{"filters": [{"name": "http", "typed_config": connections}]}]
    config = {
        "admin": at(admin),
        "static_resources": {"listeners": [{"name": "http", **at(port), "filter_chains": filters}]},
    }
    command = [str(system.wheel_programs(ENVOY)["envoy"]), "--use-dynamic-base-id", "--concurrency", "1"]
    command += ["--config-yaml", json.dumps(config), "--file-flush-interval-msec", "50"]
    with (folder / "envoy.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.exhaustive
def test_a_real_envoys_log_is_rotated_under_load_and_all_of_it_arrives(
    both: tuple[Server, Ledger], tmp_path: Path
) -> None:
    """It makes the next file when it is asked to; a second one in the same pod appends to what the first left."""
    server, ledger = both
    log_file = tmp_path / "real" / "requests.jsonl"
    log_file.parent.mkdir()
    for written in (401, 802):
        with envoy_running(tmp_path, log_file) as (url, admin), httpx.Client(base_url=url) as client:
            own = Shipper(tmp_path, log_file, ledger.url, admin, rotate_bytes=20_000)
            try:
                own.start()
                until(partial(is_answered, client))
                for _ in range(400):
                    assert client.get("/").status_code == 200
                    time.sleep(0.002)
                until(partial(has_rows, server, written))
                assert own.metric("inference_usage_shipper_rotations_total") >= 1
                until(lambda: list(log_file.parent.glob("requests.jsonl.[0-9]*")) == [])
                assert own.end() == 0
            finally:
                own.end(signal.SIGKILL)
    assert "unreadable" not in ledger.log.read_text()


def has_rows(server: Server, count: int) -> bool:
    return len(ids(server)) == count


def is_answered(client: httpx.Client) -> bool:
    try:
        return client.get("/").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def answers_lost(ledger_url: str) -> Iterator[tuple[str, list[int]]]:
    """Before a ledger: it commits, and of the first answers nothing, nonsense or a part arrives. What each added."""
    added: list[int] = []

    class Loses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            token = {TOKEN_HEADER: self.headers[TOKEN_HEADER]}
            answer = httpx.post(f"{ledger_url}{self.path}", content=body, headers=token)
            added.append(answer.json()["added"])
            parts = {1: b"", 2: b"nonsense\r\n\r\n", 3: b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"}
            whole = b"HTTP/1.1 200 OK\r\n\r\n" + answer.content
            self.wfile.write(parts.get(len(added), whole))

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Loses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", added
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.exhaustive
def test_rows_whose_answer_is_lost_are_counted_once(
    both: tuple[Server, Ledger], envoy: EmulatedEnvoy, shipper: Shipper
) -> None:
    server, ledger = both
    with answers_lost(ledger.url) as (url, added):
        shipper.arguments = [url if word == ledger.url else word for word in shipper.arguments]
        envoy.write(*(line() for _ in range(100)))
        shipper.start()
        until(lambda: shipper.log.exists() and "takes lines again" in shipper.log.read_text())
        assert shipper.end() == 0
    assert (sum(added), added[0], len(added) > 3) == (100, 100, True)
    assert ids(server) == sorted(envoy.ids)
    rows, hours = sums(server)
    assert rows == hours


@pytest.mark.exhaustive
def test_a_token_that_comes_later_and_an_admin_that_is_away_lose_nothing(
    both: tuple[Server, Ledger], envoy: EmulatedEnvoy, shipper: Shipper, tmp_path: Path
) -> None:
    server, ledger = both
    file = setting(tmp_path, "--writer-token-file")
    mounted = tmp_path / "mounted"
    mounted.write_text("another")
    away = ["http://127.0.0.1:1" if word == envoy.admin_url else word for word in shipper.arguments]
    shipper.arguments = [str(mounted) if word == str(file) else word for word in away]
    shipper.start()
    envoy.write(*(line() for _ in range(200)))
    until(lambda: shipper.log.exists() and "(401)" in shipper.log.read_text())
    mounted.write_text(file.read_text())
    until(lambda: len(ids(server)) == 200)
    # The renamed file is the one that Envoy writes to.
    envoy.write(line())
    until(lambda: ids(server) == sorted(envoy.ids))
    assert ledger.log.read_text().count("unreadable") == 0


@pytest.mark.parametrize(
    ("words", "status", "texts"),
    [
        (["--help"], 0, ["serve", "ship"]),
        (["serve", "--help"], 0, ["--prices-file", "read again when it changes"]),
        (["ship", "--help"], 0, ["--token-file", "may be killed at any moment"]),
        (["sail"], 2, ["no command 'sail'; allowed: serve, ship; fix: "]),
    ],
)
def test_help_teaches(words: list[str], status: int, texts: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "services.ledger", *words], cwd=ROOT, capture_output=True, text=True)
    shown = " ".join((done.stdout or done.stderr).split())
    assert (done.returncode, [text for text in texts if text not in shown]) == (status, [])


@pytest.mark.exhaustive
@pytest.mark.row("opening 17")
def test_the_lines_of_an_hour_without_a_database_arrive_once(
    both: tuple[Server, Ledger], envoy: EmulatedEnvoy, tmp_path: Path
) -> None:
    """50 requests each second; the shipper is killed twice in the hour, whose time the lines have and no clock."""
    server, ledger = both
    shipper = Shipper(tmp_path, envoy.path, ledger.url, envoy.admin_url, rotate_bytes=20_000_000)
    shipper.start()
    server.kill()
    began, seconds, rate = int(time.time()) - 3600, 3600, 50
    try:
        for second in range(seconds):
            envoy.write(*(line(started=f"{began + second}.{number:06}", duration_ms=900) for number in range(rate)))
            if second in (1200, 2400):
                shipper.end(signal.SIGKILL)
                shipper.start()
        until(lambda: shipper.metric("inference_usage_shipper_bytes_behind") > 50_000_000)
        server.start()
        ledger.wait_ready()
        eventually(lambda: shipper.metric("inference_usage_shipper_bytes_behind") == 0, timeout_s=900)
        assert shipper.end() == 0
    finally:
        shipper.end(signal.SIGKILL)
    assert ids(server) == sorted(envoy.ids)
    rows, hours = sums(server)
    assert rows == hours
