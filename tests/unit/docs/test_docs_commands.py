"""Every command that a page names is run by a test as it is written there, or read by the real command line."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from lab import cli
from lab.install import command as install
from stacks.plan.site_plan import plan_file
from tests import documented
from tests.command_lines import refusal
from tests.documented import PAGES, ROOT, RUN_WHOLE, shown
from tests.unit.sitectl.sites_to_work_on import make_checkout

# What no test can run, with what holds it instead. `sh check` blocks are run as they are, on a running site.
NOT_RUN = {
    # Pulumi's own plugins are not on a package registry; the versions are held by the test below.
    "pulumi plugin install resource kubernetes v4.34.2": "test_official_plugins_are_named_in_the_version_of_their_sdk",
    "pulumi plugin install resource command v1.2.1": "test_official_plugins_are_named_in_the_version_of_their_sdk",
}
# What a target has to lead to, seen by `make -n`.
CORES = os.cpu_count() or 0
PROMISES = {
    "venv": ["lab/bootstrap.py"],
    "tools": ["-m lab install"],
    "lab": ["-m lab install", "-m lab up", "-m lab deploy"],
    "lab-down": ["-m lab down"],
    "doctor": ["-m lab doctor"],
    "drill": ["-m lab install", "-m exhaustive tests/lab/site/test_failure_modes.py"],
    "test": [
        "ruff check",
        "ruff format --check",
        "mypy",
        f'pytest -q -p tests.forks --forks {CORES + 2} -m "not exhaustive and not second_source" tests/unit',
        f"{CORES + 1}*popen//python=tests/lab/alone.sh .venv/bin/python' tests/lab",
    ],
    "test-processes": ['-m "(processes or slow or simulations) and not exhaustive" tests/unit'],
    "test-all": [
        '-m "not exhaustive and not second_source" tests/unit',
        f"{CORES + 1}*popen//python=tests/lab/alone.sh .venv/bin/python' tests/lab",
        "-m exhaustive tests/unit",
        "1*popen//python=tests/lab/alone.sh .venv/bin/python' -m exhaustive tests/lab",
        "-m tests.exhaustive.second_source",
    ],
    "lint": ["ruff check", "ruff format --check", "mypy"],
    "check": ["ruff check", "ruff format --check", "mypy", "-m tests.changed"],
    "docs": [
        "-m stacks.site.reference",
        "-m components.monitoring.dashboards",
        "-m tests.requirements",
        "-m tests.live_table",
    ],
}


@cache
def run_by_tests() -> frozenset[str]:
    """Commands that tests take from the pages and run: arguments of `documented.argv` and `.shell` in test modules."""
    taken: set[str] = set()
    for text in (path.read_text() for path in (ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(text)) if "documented." in text else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("documented"), attr="argv" | "shell"), args=[ast.Constant(word)]
                ):
                    taken.add(str(word))
    return frozenset(taken)


def why_refused(command: str) -> str:
    """Why the program's own command line does not take a command that needs a lab or an hour; empty when it does."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        del words[0]
    match words:
        case ["make", *given]:
            targets = [word for word in given if "=" not in word]
            # `make -n` of each is a test below.
            return "" if set(targets) <= PROMISES.keys() else "the target is not in PROMISES"
        case ["python", "-m", "lab", *arguments]:
            return refusal(cli.COMMAND_LINE, arguments)
        case ["python", "-m", "lab.install", *arguments]:
            return refusal(install.command, arguments)
        case _:
            return "no test takes it by documented.argv, and no command line of ours reads it"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_command_is_run_or_read_by_the_real_command_line(page: Path) -> None:
    ahead = [
        command for command in documented.commands(page) if command not in run_by_tests() and command not in NOT_RUN
    ]
    if shown(page) in RUN_WHOLE:
        ahead = [command for command in ahead if not command.startswith("python -m ")]
    assert {command: why_refused(command) for command in ahead if why_refused(command)} == {}


def test_a_command_that_nobody_reads_is_refused() -> None:
    for wrong in (
        "python -m lab install --lits",
        "make nothing",
        "kubectl delete all",
        "python -m lab.install --bundel x",
    ):
        assert why_refused(wrong), wrong


def test_what_cannot_be_run_is_still_on_a_page_and_held_by_a_test() -> None:
    assert NOT_RUN.keys() <= {command for page in PAGES for command in documented.commands(page)}
    assert set(NOT_RUN.values()) <= documented.names_of_tests()


@pytest.mark.parametrize("command", sorted(run_by_tests()))
def test_commands_that_tests_run_are_on_a_page(command: str) -> None:
    assert documented.argv(command)


def test_git_ignores_what_the_pages_have_commands_write() -> None:
    """Output and credentials next to the program, in a checkout that people commit from."""
    written = re.compile(r"(?:--out|--output|--save|--file|>) ([a-z][\w./-]*)")
    files = {
        name
        for page in PAGES
        for language, content in documented.fences(page)
        if language in ("sh", "sh check", "text")
        for name in written.findall(content)
    }
    assert {"rendered", "offline", "previews", "preview.json", "kubeconfig", "secrets.yaml", "etcd.snapshot"} <= files
    # With a slash, as git asks for a folder that is not there yet.
    asked = [name if "." in name or name.startswith(("kubeconfig", "talosconfig")) else f"{name}/" for name in files]
    done = subprocess.run(["git", "check-ignore", *asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(asked) - set(done.stdout.split()) == set()


def test_the_copied_site_is_a_site(tmp_path: Path) -> None:
    folder = make_checkout(tmp_path / "checkout", sites=("prod",))
    subprocess.run(documented.argv("cp -n Pulumi.prod.yaml Pulumi.berlin.yaml"), cwd=folder, check=True)
    (folder / "Pulumi.prod.yaml").unlink()
    copied = folder / "Pulumi.berlin.yaml"
    copied.write_text(copied.read_text().replace("    name: prod\n", "    name: berlin\n"))
    assert plan_file(copied).site.name == "berlin"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_lab_commands_are_understood(page: Path) -> None:
    text = page.read_text()
    inline = re.findall(r"`(?:[A-Z_]+=\S+ )*python -m lab ([^`|\n]+)`", text)
    fenced = [
        command.partition("python -m lab ")[2].partition("|")[0]
        for language in ("sh", "sh check")
        for command in documented.commands(page, language)
        if "python -m lab " in command
    ]
    for written in [*inline, *fenced]:
        words = shlex.split(written.partition(")")[0])
        assert refusal(cli.COMMAND_LINE, words) == "", written


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|[A-Z_]+=\S+ )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named - targets == set()


@pytest.mark.parametrize("target", sorted(PROMISES))
def test_the_targets_of_make_run_what_they_promise(target: str) -> None:
    # Without what the make around this test was given.
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    done = subprocess.run(
        ["make", "-n", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert [part for part in PROMISES[target] if part not in done.stdout] == []


def test_make_and_lab_say_what_there_is() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    described = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert described == set(re.findall(r"^  make ([a-z-]+) ", printed, re.MULTILINE))
    reported = subprocess.run(
        [sys.executable, "-m", "lab", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [name for name in cli.COMMAND_LINE.meanings if name not in reported] == []
