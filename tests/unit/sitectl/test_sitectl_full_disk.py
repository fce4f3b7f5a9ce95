"""A disk that is full ends a command with its reason, and leaves no half of a file."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sitectl.offline import manifests_folder
from sitectl.shell import whole_files
from sitectl.shell.errors import Exit, SitectlError
from tests.fixtures.previews import kept
from tests.unit.sitectl.sites_to_work_on import ROOT, CommandResult, make_checkout

pytestmark = [pytest.mark.processes, pytest.mark.row("opening 3", "C.06")]


def limited(limit: str, folder: Path, *words: str) -> CommandResult:
    """`python -m sitectl ARGUMENTS` under a limit of the shell."""
    command = shlex.join([sys.executable, "-m", "sitectl", *words, "--project", str(folder)])
    # Python leaves half of a compiled module where a write is cut short, and every later import of it fails.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["bash", "-c", f"{limit} && exec {command}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=("lab",))


def test_init_leaves_no_half_of_a_site(own: Path) -> None:
    result = limited("ulimit -f 1", own, "init", "oslo")
    assert result.status == Exit.UNABLE, result
    assert "Pulumi.oslo.yaml: File too large" in result.err and "fix: " in result.err
    assert not list(own.glob("*oslo*")) and not list(own.glob(".*.part"))


def test_a_preview_that_cannot_be_saved_leaves_the_old_one(own: Path, tmp_path: Path) -> None:
    file = tmp_path / "q.json"
    before = kept.text("replica-cut")
    file.write_text(before)
    result = limited("ulimit -f 8", own, "plan", "lab", "--from", str(file), "--save", str(file))
    assert (result.status, "q.json: File too large" in result.err) == (Exit.UNABLE, True), result
    assert file.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "q.json"]


def test_half_of_a_rendered_folder_is_not_read_and_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a.yaml": "{apiVersion: v1, kind: A, metadata: {name: a}}\n", "b.yaml": "{}\n"}
    folder = tmp_path / "lab"
    really_write = Path.write_text

    def full(path: Path, text: str) -> int:
        if path.name == "b.yaml":
            raise OSError(28, "No space left on device")
        return really_write(path, text)

    manifests_folder.write(folder, {"a.yaml": files["a.yaml"]})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match=r"No space left.*b\.yaml"):
            manifests_folder.write(folder, files)
    with pytest.raises(SitectlError, match=f"render lab --out {tmp_path}"):
        manifests_folder.read(folder)
    manifests_folder.write(folder, {"a.yaml": files["a.yaml"]})
    assert [manifest.name for manifest in manifests_folder.read(folder)] == ["a"]


def test_a_folder_with_the_name_of_a_manifest_is_left_alone(tmp_path: Path) -> None:
    manifest = "{apiVersion: v1, kind: A, metadata: {name: a}}\n"
    manifests_folder.write(tmp_path, {"a.yaml": manifest})
    (tmp_path / "dir.yaml").mkdir()
    manifests_folder.write(tmp_path, {"a.yaml": manifest})
    assert [manifest.name for manifest in manifests_folder.read(tmp_path)] == ["a"]


def test_a_file_is_replaced_where_its_link_leads_and_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    whole_files.write(link, "new")
    assert (file.read_text(), link.is_symlink(), stat.S_IMODE(file.stat().st_mode)) == ("new", True, 0o640)
    whole_files.write(file, "secret", private=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        whole_files.write_new(file, "other")
    with pytest.raises(IsADirectoryError):
        whole_files.write(tmp_path, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    whole_files.write(pipe, "text")
    assert (os.read(reader, 10), pipe.is_fifo()) == (b"text", True)
    os.close(reader)
    script = "import pathlib, sys; from sitectl.shell.whole_files import write; write(pathlib.Path(sys.argv[1]), 'a')"
    command = [sys.executable, "-c", script, "/dev/stdout"]
    with (tmp_path / "out").open("w") as out:
        subprocess.run(command, cwd=ROOT, stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "a"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("limit", "says"),
    [
        # What the command writes itself, then what its child does.
        ("ulimit -f 1", f"the temporary folder {tempfile.gettempdir()}: File too large\n  fix: free space there"),
        ("ulimit -f 20", f"the temporary folder {tempfile.gettempdir()}: File too large\n  fix: free space there"),
        ("ulimit -f 0", "no temporary folder can be made: No usable temporary directory"),
        ("ulimit -n 5", "Too many open files\n  fix: let the program open more files: ulimit -n"),
        ("ulimit -v 92000", "the program gets no more of the system: out of memory\n  fix: "),
    ],
)
def test_rules_say_what_the_machine_lacks(own: Path, limit: str, says: str) -> None:
    result = limited(limit, own, "rules", "lab")
    assert (result.status, says in result.err) == (Exit.UNABLE, True), result


def test_a_deleted_folder_is_reported(tmp_path: Path) -> None:
    result = limited(f"mkdir {tmp_path}/a; cd {tmp_path}/a; rmdir {tmp_path}/a", Path("own"), "validate")
    assert (result.status, "the current folder was deleted\n  fix: " in result.err) == (Exit.USAGE, True), result
