"""The command line's edge: every failure is reported in the form of our errors, and no traceback is shown."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sitectl.shell import cli
from sitectl.shell.command import Command
from sitectl.shell.errors import Exit
from tests.unit.sitectl.sites_to_work_on import COMMAND, PROGRAM, ROOT, CommandResult, make_checkout, run

pytestmark = pytest.mark.processes

SECRET = "sk-0123456789abcdef0123456789abcdef"


def process(folder: Path, *words: str, root: Path = ROOT, **environment: str) -> CommandResult:
    """`python -m sitectl` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "sitectl", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def is_reported(result: CommandResult, status: Exit, says: str) -> None:
    assert result.status == status, result
    assert says in result.err
    assert "fix: " in result.err
    assert "Traceback" not in result.err + result.out


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=("lab",))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: a directory, not a file"),
        (b"", "is not a saved preview"),
        (b"\xff\xfe", "is no UTF-8"),
        (b"[" * 100_000, "is not a saved preview"),
        (b"[]", "is not a preview of the engine"),
        (b"{}", "is not a preview of the engine: steps: field required"),
        (b'{"steps": null}', "is not a preview of the engine: steps: input should be a valid list"),
        (b'{"steps": [null]}', "is not a preview of the engine: steps.0: input should be"),
        (b'{"steps": [{"op": "create"}]}', "is not a preview of the engine: steps.0.urn: field required"),
        (b'{"steps": [{"op": "update", "urn": "a", "oldState": {"inputs": []}}]}', "steps.0.oldState.inputs: input"),
    ],
)
def test_plan_refuses_what_is_no_preview(own: Path, content: bytes | None, says: str) -> None:
    file = own / "preview.json"
    file.mkdir() if content is None else file.write_bytes(content)
    is_reported(run(own, "plan", "lab", "--from", str(file)), Exit.USAGE, says)


@pytest.mark.parametrize(
    ("script", "mode", "says"),
    [
        (b"#!/bin/sh\n", 0o644, "pulumi on PATH cannot be run: Permission denied"),
        (b"\x7fnothing", 0o755, "pulumi on PATH cannot be run: Exec format error"),
        (b"#!/bin/sh\nprintf '\\377\\376'; printf 'no such stack \\377' >&2; exit 1\n", 0o755, "no such stack"),
        (b"#!/bin/sh\necho '{\"steps\": [null]}'\n", 0o755, "the engine's answer is not a preview of the engine"),
        (
            b"#!/bin/sh\necho \"error: no stack named 'lab' found\" >&2; exit 6\n",
            0o755,
            "fix: pulumi stack init lab, with a backend and a secrets provider: python -m sitectl docs add-a-site",
        ),
    ],
)
def test_plan_tells_of_a_pulumi_that_does_not_answer(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: bytes, mode: int, says: str
) -> None:
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_bytes(script)
    program.chmod(mode)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    result = run(own, "plan", "lab")
    assert (result.status in (Exit.UNABLE, Exit.USAGE), "Traceback" in result.err) == (True, False)
    assert says in result.err
    assert "fix: " in result.err


@pytest.mark.exhaustive
def test_render_refuses_a_file_in_the_place_of_its_folder(checkout_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("mine\n")
    is_reported(run(checkout_folder, "render", "lab", "--out", str(file)), Exit.USAGE, f"{file} is a file")
    is_reported(run(checkout_folder, "render", "lab", "--out", str(file / "below")), Exit.USAGE, f"{file} is a file")
    assert file.read_text() == "mine\n"


def test_a_full_disk_behind_the_output_is_reported(own: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sitectl", "docs", "--project", str(own)],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == Exit.UNABLE
    assert done.stderr.startswith("error: the output cannot be written: No space left on device\n  fix: ")
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(own: Path) -> None:
    command = f"{sys.executable} -m sitectl docs add-a-site --project {own} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0", "")


@pytest.mark.parametrize("module", ["yaml", "click"])
def test_an_interrupt_during_imports_is_silent(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n")
    result = process(ROOT, "validate", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (result.status, result.out, result.err) == (Exit.INTERRUPTED, "", "")


@pytest.mark.exhaustive
def test_a_fifo_as_a_sites_file_is_reported_and_not_waited_for(own: Path) -> None:
    os.mkfifo(own / "Pulumi.pipe.yaml")
    result = process(ROOT, "validate", "--project", str(own), "pipe")
    assert (result.status, "a FIFO, not a file" in result.out) == (Exit.REFUSED, True)
    for command in (["rules", "pipe"], ["proof", "pipe"], ["render", "pipe", "--out", str(own / "out")]):
        result = process(ROOT, *command, "--project", str(own))
        assert (result.status, "a FIFO, not a file" in result.out) == (Exit.REFUSED, True), command


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", ["hardware/h200-sxm.yaml", "versions.yaml", "catalogue/glm-5.1-fp8.yaml"])
def test_a_broken_file_of_facts_is_one_error_where_it_is_needed(tmp_path: Path, file: str) -> None:
    """What is not there to be asked cannot stop --help; what needs the file names it."""
    copy = make_checkout(tmp_path / "copy", sites=("lab",), copied=PROGRAM)
    for package in COMMAND:
        shutil.copytree(ROOT / package, copy / package)
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "stacks" / "facts" / file).write_text("")
    for words in (["--help"], ["init", "--help"], ["docs"]):
        assert process(copy, *words, root=copy).status == Exit.OK
    result = process(copy, "validate", root=copy)
    assert (result.status, "Traceback" in result.out + result.err) == (Exit.REFUSED, False)
    assert f"stacks/facts/{file}: " in result.out + result.err
    if file == "versions.yaml":
        assert f"stacks/facts/{file}: " in process(copy, "versions", root=copy).err


@pytest.mark.exhaustive
def test_a_missing_file_of_versions_is_named_by_every_command(tmp_path: Path) -> None:
    copy = make_checkout(tmp_path / "copy", sites=("lab",), copied=PROGRAM)
    for package in COMMAND:
        shutil.copytree(ROOT / package, copy / package)
    (copy / "stacks" / "facts" / "versions.yaml").unlink()
    for words in (["validate"], ["rules"], ["init", "oslo"], ["doctor"]):
        result = process(copy, *words, root=copy)
        listed = result.out + result.err
        assert (result.status, "stacks/facts/versions.yaml: 1 error in the file" in listed) == (Exit.REFUSED, True), (
            result
        )
        assert "change the argument" not in listed and "Traceback" not in listed
    assert "bad   site lab" in listed and "ok    python" in listed, "doctor goes on"


@pytest.mark.exhaustive
def test_a_site_that_is_a_link_to_nowhere_stops_no_other_site(own: Path) -> None:
    (own / "Pulumi.dang.yaml").symlink_to("/nonexistent")
    result = process(ROOT, "rules", "--project", str(own))
    assert (result.status, result.err.count("error")) == (Exit.REFUSED, 0), result
    assert "Pulumi.dang.yaml: no such file" in result.out and "lab: 0 broken" in result.out


@pytest.mark.parametrize("words", [["catalogue", "show"], ["catalogue", "nope"], ["catalogue", "list", "--nope"]])
def test_a_mistake_below_a_command_has_the_same_form(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(words)
    errors = capsys.readouterr().err
    assert (status, errors.startswith("error: "), "\n  fix: " in errors) == (Exit.USAGE, True, True), errors


def fails(*_: Any) -> int:
    raise RuntimeError(SECRET)


def test_what_nobody_foresaw_is_one_line_that_says_where_to_report_it(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Command("validate", callback=fails)
    monkeypatch.setitem(sys.modules, "sitectl.commands.validate", SimpleNamespace(command=broken))
    result = run(own, "validate")
    assert result.status == Exit.BUG
    assert result.err.splitlines() == [
        f"error: sitectl has a bug: RuntimeError in test_sitectl_edge.py:{fails.__code__.co_firstlineno + 1}",
        "  fix: report it in the project's issue tracker, with the command line and what --debug shows",
    ]
    debug = run(own, "validate", "--debug")
    assert "Traceback" in debug.err and "RuntimeError" in debug.err
    assert SECRET not in debug.err, "a trace is posted where others read it"
    data = json.loads(run(own, "validate", "--json").out)
    assert data["error"]["what"].startswith("sitectl has a bug")


def test_an_unknown_command_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validat"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("error: no command 'validat'; did you mean 'validate'?\n  fix: ")
    assert cli.main(["zzz"]) == Exit.USAGE
    assert "allowed: init, catalogue, validate, " in capsys.readouterr().err


def test_validate_takes_a_path(own: Path, tmp_path: Path) -> None:
    """A file that is in no checkout, by its own path and by one from where the user is."""
    (tmp_path / "Pulumi.oslo.yaml").write_text((own / "Pulumi.lab.yaml").read_text().replace("name: lab", "name: oslo"))
    for named in ("Pulumi.oslo.yaml", str(tmp_path / "Pulumi.oslo.yaml")):
        result = run(tmp_path, "validate", named)
        assert (result.status, result.out.count("valid; ")) == (Exit.OK, 1), result
    result = run(tmp_path, "validate", "none.yaml")
    assert (result.status, "no such file" in result.out) == (Exit.REFUSED, True)


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == Exit.OK
    assert capsys.readouterr().out.startswith("sitectl 0.")


@pytest.mark.exhaustive
def test_a_closed_output_leaves_the_status(tmp_path: Path) -> None:
    """As in a script that only checks whether a site is valid."""
    prod = tmp_path / "Pulumi.prod.yaml"
    prod.write_text((ROOT / prod.name).read_text())
    command = f"{shlex.quote(sys.executable)} -m sitectl validate {shlex.quote(str(prod))} >&-"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    prod.write_text("config: {}\n")
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == Exit.REFUSED
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "status"), [("validate nope", Exit.USAGE), ("validat", Exit.USAGE), ("validate lab", Exit.OK)]
)
@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", "2>&- >&-"])
def test_errors_that_nobody_can_read_leave_the_status(own: Path, words: str, status: Exit, stream: str) -> None:
    project = "" if words == "validat" else f"--project {shlex.quote(str(own))}"
    command = f"{shlex.quote(sys.executable)} -m sitectl {words} {project} {stream}"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == status


def test_a_letter_that_stdout_has_not_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.müll.yaml").write_text("config: {}\n")
    result = process(tmp_path, "validate", "Pulumi.müll.yaml", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (result.status, result.err) == (Exit.REFUSED, ""), result
    assert "Pulumi.m\\xfcll.yaml: " in result.out


def test_the_next_step_works_from_where_the_user_is(own: Path, tmp_path: Path) -> None:
    """`rules` needs the checkout that `validate` was given, and takes no path."""
    assert run(own, "validate", "lab").out.splitlines()[-1] == f"next: python -m sitectl proof lab --project {own}"
    prod = tmp_path / "Pulumi.prod.yaml"
    prod.write_text((ROOT / prod.name).read_text())
    result = run(ROOT, "validate", str(prod))
    assert (result.status, "next: " in result.out) == (Exit.OK, False)


WITHOUT_A_FIX = [
    ["drift"],
    ["drift", "--site", "x", "folder"],
    ["diff", "--", "-x"],
    ["rules", "--list", "nope"],
    ["explain", "--site", "lab", "Namespace/inference-models", "spec.nope"],
]


@pytest.mark.parametrize("words", WITHOUT_A_FIX)
def test_a_wrong_command_line_has_a_fix(checkout_folder: Path, words: list[str]) -> None:
    result = run(checkout_folder, *words)
    assert (result.status, "\n  fix: " in result.err) == (Exit.USAGE, True), result
