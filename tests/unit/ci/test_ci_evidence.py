"""The nightly job that keeps the head of each site's audit, against a real directory and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ci import evidence
from sitectl.shell.errors import Exit
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import OPERATOR, Directory, created
from tests.unit.services.postgres_rig import ROOT, Server
from tests.unit.sitectl.site_with_service import AskedSite

pytestmark = [pytest.mark.processes, pytest.mark.row("000.05")]

KEY = "sk-a-key-of-the-stack"
OUTPUTS = {"endpoint": "https://llm.site.example/v1", "keys": {"search.ci": KEY}, "kubeconfig": "clusters: []"}


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as both:
        yield both


@pytest.fixture
def site(tmp_path: Path, both: tuple[Server, Directory], monkeypatch: pytest.MonkeyPatch) -> AskedSite:
    """The reference site's directory is this one, by stand-ins for pulumi and kubectl."""
    made = AskedSite(tmp_path, "directory", both[1].port, OPERATOR)
    (tmp_path / "bin" / "pulumi").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(OUTPUTS)}\nEND\n")
    monkeypatch.setenv("PATH", made.path)
    return made


def kept(folder: Path, *sites: str) -> int:
    """Status of the job on this checkout."""
    words = [word for name in sites for word in ("--site", name)]
    return evidence.main(["--project", str(ROOT), "--out", str(folder), *words], {})


def finding(folder: Path) -> dict[str, Any]:
    (of_audit,) = json.loads((folder / "prod" / "evidence.json").read_text())["findings"]
    return dict(of_audit)


@pytest.mark.usefixtures("site")
def test_a_night_keeps_the_head_and_finds_a_chain_that_was_changed(
    both: tuple[Server, Directory], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server, directory = both
    with directory.client() as client:
        created(client)
        head = client.get("/v1/audit").json()["head"]
    assert kept(tmp_path / "first", "prod", "lab") == Exit.OK
    assert "lab: has no directory of keys, and so no audit of them\n" in capfd.readouterr().out
    assert [folder.name for folder in (tmp_path / "first").iterdir()] == ["prod"]
    assert finding(tmp_path / "first")["seen"] == [f"head 1:{head['hash']}"]
    assert KEY not in str([file.read_text() for file in (tmp_path / "first" / "prod").iterdir()])
    server.sql("ALTER TABLE audit DISABLE TRIGGER append_only; UPDATE audit SET at = 1")
    assert kept(tmp_path / "second", "prod") == Exit.REFUSED
    assert "row 1 does not fit" in finding(tmp_path / "second")["reason"]


def test_a_site_that_cannot_be_asked_ends_the_night_red(site: AskedSite, tmp_path: Path) -> None:
    (tmp_path / "bin" / "pulumi").write_text("#!/bin/sh\necho 'error: no such stack' >&2; exit 1\n")
    assert kept(tmp_path / "out", "prod") == Exit.UNABLE
    assert not (tmp_path / "out").exists()
