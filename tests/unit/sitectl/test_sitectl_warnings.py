"""Warnings, the third state: shown wherever a site is looked at, and they refuse nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ci import previews
from sitectl.errors import Exit
from sitectl.markdown import document
from sitectl.previews_folder import reports
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, print_recording, run

KEY = "cluster.machines.nodes"
SAID = "2 control planes (cp-1, cp-2) survive no more failures than 1: etcd needs more than half of them"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose site has two control planes; `pulumi` prints a recording without a change."""
    made = make_checkout(tmp_path / "own", sites=("prod",))
    file = made / "Pulumi.prod.yaml"
    without = "          cp-3: {role: controlplane, address: 10.5.0.13}\n"
    assert without in file.read_text()
    file.write_text(file.read_text().replace(without, ""))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pulumi").write_text(f"#!/bin/sh\n{print_recording('no-change')}\n")
    (programs / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return made


def line_of(folder: Path) -> int:
    lines = (folder / "Pulumi.prod.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line == "        nodes:")


@pytest.mark.parametrize("command", ["validate", "proof", "rules", "plan"])
def test_each_command_shows_the_warning_with_its_line_and_ends_well(folder: Path, command: str) -> None:
    result = run(folder, command, "prod")
    assert result.status == Exit.OK, result.out
    words = " ".join(result.out.split())
    assert f"warning: Pulumi.prod.yaml:{line_of(folder)}:{KEY}: {SAID} fix: have an odd number" in words
    data = run(folder, command, "prod", "--json").data
    if command == "plan":
        (text,) = data["warnings"]
        assert text.startswith(f"Pulumi.prod.yaml:{line_of(folder)}:{KEY}: {SAID}")
    else:
        (warning,) = data["prod"]["warnings"]
        assert (warning["key"], warning["line"], warning["what"]) == (KEY, line_of(folder), SAID)


def test_the_comment_of_ci_shows_it_although_nothing_changes(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert previews.main(["--project", str(folder), "--out", str(out)], {}) == Exit.OK
    text = document(reports(out))
    assert "**1 warning: the site is valid, and this is not wise.**" in text
    assert SAID in text


def test_the_program_tells_the_engine(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; import pulumi\n"
        "pulumi.log.warn = lambda text, *_, **__: print('WARNED', text)\n"
        "from sitectl.mocked_program import declared\n"
        "sys.path.insert(0, '.'); declared('prod', Path('document.json'))\n"
    )
    (folder / "document.json").write_text(json.dumps(yaml.safe_load((folder / "Pulumi.prod.yaml").read_text())))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert f"{KEY}: {SAID}" in done.stdout


def test_a_site_without_warnings_says_none(checkout_folder: Path) -> None:
    result = run(checkout_folder, "validate")
    assert "warning" not in result.out
    assert {name: record["warnings"] for name, record in run(checkout_folder, "validate", "--json").data.items()} == {
        "lab": [],
        "prod": [],
    }
