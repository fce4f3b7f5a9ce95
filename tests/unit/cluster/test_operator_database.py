"""The lab's PostgreSQL: there where the site's file names it, with an address that opens it."""

from __future__ import annotations

import base64
import logging
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from lab.cluster import operator_database, operator_secret, processes
from lab.cluster.postgres import Postgres
from lab.free_ports import free_port
from lab.install import installer, parts
from lab.paths import Lab, NetworkPlan
from lab.site import supervisor
from tests.unit.services.postgres_rig import program

NAMED = """\
config:
  inference-platform:site:
    callers: {database_secret: directory-database}
    usage: {database_secret: usage-database}
"""
DATABASES = {"directory-database": "directory", "usage-database": "ledger"}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(home=tmp_path / "home", cache=tmp_path / "cache", site_file=tmp_path / "site.yaml")
    made.make_folders()
    for wheel in parts.WHEELS:
        installer.WheelPart(wheel).install(installer.Installation(made, made.bundle))
    made.site_file.write_text(NAMED)
    monkeypatch.setattr(NetworkPlan, "database", IPv4Address("127.0.0.1"))
    monkeypatch.setattr(operator_database, "_PORT", free_port())
    return made


def url(lab: Lab, name: str = "directory-database") -> str:
    secret = operator_database.wanted(lab, name)
    assert secret is not None
    assert secret["metadata"] == {"name": name, "namespace": "inference-gateway"}
    return base64.b64decode(secret["data"]["url"]).decode()


@pytest.fixture
def running(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    address = url(lab)
    child = operator_database.component(lab).start(lab)
    while subprocess.run([program("psql"), "-c", "SELECT 1", address], capture_output=True, check=False).returncode:
        assert child.poll() is None, (lab.logs / "operator-database.log").read_text()
    yield child
    processes.send([child.pid], signal.SIGKILL)
    child.wait()


@pytest.mark.processes
def test_the_address_in_the_secret_opens_the_database(lab: Lab, running: subprocess.Popen[bytes]) -> None:
    part = operator_database.component(lab)
    assert part.pid() == running.pid
    asked = "SELECT usesuper, current_database() FROM pg_user WHERE usename = current_user"
    for name, database in DATABASES.items():
        words = ("-At", "-c", asked, url(lab, name))
        done = subprocess.run([program("psql"), *words], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"f|{database}", "a role that is no administrator, in a database of its own"
    others = url(lab).rpartition("/")[0] + "/ledger"
    assert subprocess.run([program("psql"), "-c", "SELECT 1", others], capture_output=True, check=False).returncode
    wrong = url(lab).replace("directory:", "directory:x", 1)
    assert subprocess.run([program("psql"), "-c", "SELECT 1", wrong], capture_output=True, check=False).returncode
    processes.send([running.pid], signal.SIGKILL)
    running.wait()
    assert part.pid() is None
    again = part.start(lab)
    while subprocess.run([program("psql"), "-c", "SELECT 1", url(lab)], capture_output=True, check=False).returncode:
        if again.poll() is not None:
            # Processes of the one before may still hold its memory; the supervisor tries again too.
            again = part.start(lab)
    processes.send([again.pid], signal.SIGKILL)
    again.wait()


@pytest.mark.processes
def test_the_supervisor_runs_it_from_the_moment_that_it_is_there(lab: Lab) -> None:
    def names() -> list[str]:
        return [part.name for part in supervisor.components(lab)]

    assert operator_database.COMPONENT not in names()
    before = url(lab)
    assert operator_database.COMPONENT in names()
    assert supervisor._STOP_ORDER.index("pod-runner") < supervisor._STOP_ORDER.index(operator_database.COMPONENT)
    assert url(lab) == before, "it is made once"
    assert lab.database_password.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "config: [", "config: {inference-platform:site: {callers: {database_secret: own}}}"]
)
def test_a_site_that_does_not_name_it_has_none(lab: Lab, text: str) -> None:
    lab.site_file.write_text(text)
    for name in DATABASES:
        assert operator_database.wanted(lab, name) is None
        assert operator_database.wanted(replace(lab, site_file=lab.home / "none.yaml"), name) is None
    assert not lab.database_password.exists()


def test_the_password_is_in_no_log(lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(Postgres, "make", lambda *_: None)
    password = url(lab).split(":")[2].partition("@")[0]
    assert operator_secret.value_of(lab.site_file, "callers", "database_secret") == operator_database.DIRECTORY
    assert len(password) > 20
    assert password not in caplog.text + repr(operator_database.component(lab))
