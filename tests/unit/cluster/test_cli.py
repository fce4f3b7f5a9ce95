from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import cli
from lab.cluster import network
from lab.errors import LabError
from lab.paths import Lab

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("command", sorted(cli.COMMAND_LINE.meanings))
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert f"python -m lab {command}" in capsys.readouterr().out


def test_what_the_user_can_mend_is_printed_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--hgx", "99"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: 99 HGX machines do not fit a lab")
    assert "fix: give --hgx a number from 0 to 30" in printed


def test_a_folder_that_cannot_be_written_is_printed_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout of another user: `lab env` ended in a traceback."""

    def closed(_lab: Lab) -> None:
        raise PermissionError(13, "Permission denied", "/checkout/.lab")

    monkeypatch.setattr(Lab, "make_folders", closed)
    assert cli.main(["env"]) == 1
    assert capsys.readouterr().err == (
        "error: /checkout/.lab: Permission denied\n"
        "  fix: work in a checkout of your own, or name folders that you may write: LAB_HOME, LAB_CACHE\n"
    )


def test_without_root_make_lab_says_so_before_it_builds_anything(tmp_path: Path) -> None:
    """It built for half an hour, and only then refused."""
    stub = tmp_path / "id"
    stub.write_text("#!/bin/sh\necho 1000\n")
    stub.chmod(0o755)
    # Without what the make around this test was given.
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    for target in ("lab", "test", "test-lab", "test-site", "test-all", "bench"):
        done = subprocess.run(
            ["make", target, "PYTHON=/nowhere/python"],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr.splitlines()[:2] == [
            "error: the lab needs root, and this is user id 1000",
            "  fix: run it by sudo; bin/sitectl and make check need neither root nor lab",
        ], target
        assert done.returncode == 2


def test_without_root_it_says_why_a_user_namespace_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="needs root, and this is user id 1000") as refused:
        network.require_root()
    assert "user namespace does not suffice" in refused.value.fix


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    lab = Lab(home=tmp_path, cache=tmp_path, index=5)
    with network.machine_lock(lab), pytest.raises(LabError, match="another `lab up`"), network.machine_lock(lab):
        pass
    with network.machine_lock(lab):
        pass


def test_failed_ip_command_names_itself_and_what_is_needed() -> None:
    with pytest.raises(LabError, match="`ip link set absent-link up` failed") as refused:
        network._ip("link", "set", "absent-link", "up")
    assert "CAP_NET_ADMIN" in refused.value.fix


def test_owner_of_an_unused_index_is_nobody(tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v ip"], capture_output=True, check=False).returncode != 0:
        pytest.skip("iproute2 is not installed")
    assert network.owner(Lab(home=tmp_path, cache=tmp_path, index=99)) is None
