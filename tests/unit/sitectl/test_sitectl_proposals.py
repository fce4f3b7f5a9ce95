"""A command that a message proposes is one that its parser takes, and overwrites no file."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ci import evidence, offline, previews
from lab import cli as lab_cli
from sitectl.shell import cli
from sitectl.shell.errors import Exit
from talos.cli import main as talos_cli
from tests.command_lines import refusal
from tests.unit.sitectl.sites_to_work_on import ROOT, run

SOURCES = sorted(
    path
    for folder in ("sitectl", "floor", "stacks", "components", "talos", "ci", "policy", "bundle")
    for path in (ROOT / folder).rglob("*.py")
)

pytestmark = pytest.mark.row("opening 2", "C.05")
COMMAND_LINES = {
    "sitectl": cli.COMMAND_LINE,
    "lab": lab_cli.COMMAND_LINE,
    "talos": talos_cli.COMMAND_LINE,
    "ci.evidence": evidence.command,
    "ci.offline": offline.command,
    "ci.previews": previews.command,
}
COMMAND = re.compile(r"python -m ([\w.]+)([^\n`;]*)")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Each string of a source file, with sample values for its placeholders."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_words(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def _words(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    source = ast.unparse(part)
    # A join by blanks may fill in several arguments.
    return "one two" if ".join(" in source and "' '" in source.split(".join(")[0] else "one"


@cache
def proposals() -> list[tuple[str, str, str]]:
    """(where, module, its arguments) of each command in a text; in help, the text after two blanks explains it."""
    proposed = []
    # Each test worker calls this: a text without such a command need not be parsed.
    for path in (path for path in SOURCES if "python -m" in path.read_text()):
        for line, text in texts(path):
            for match in COMMAND.finditer(text):
                # Without explanation, pipe, redirection, the brackets of a usage line, and the end of the sentence.
                words = re.split(r"\s{2,}| [|<>] ?", match[2])[0].translate(str.maketrans("", "", "[]")).rstrip('),". ')
                proposed.append((f"{path.relative_to(ROOT)}:{line}", match[1], words))
    return proposed


def test_commands_are_found() -> None:
    modules = {module for _, module, _ in proposals()}
    assert {"sitectl", "lab"} <= modules
    assert len(proposals()) > 50


@pytest.mark.parametrize(("where", "module", "words"), proposals(), ids=lambda value: str(value).strip()[:60])
def test_a_proposed_command_is_understood(where: str, module: str, words: str) -> None:
    arguments = shlex.split(words)
    if module not in COMMAND_LINES:
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").exists() or (
            ROOT / Path(*module.split("."))
        ).is_dir()
        return
    if arguments in ([], ["..."]):
        return
    assert refusal(COMMAND_LINES[module], arguments) == "", f"{where}: python -m {module}{words}"


@pytest.mark.slow
def test_no_proposed_command_writes_over_a_file_that_the_user_named() -> None:
    """`plan --from Pulumi.prod.yaml` proposed `pulumi preview --json > Pulumi.prod.yaml`."""
    risky = re.compile(r"(?:python -m|pulumi|talosctl|kubectl) [^\n]*(?:> ?|--save |--markdown )one(?![/\w])")
    assert [where for path in SOURCES for where, text in texts(path) if risky.search(text)] == []


def test_plan_leaves_a_file_that_is_no_preview_alone(checkout_folder: Path) -> None:
    before = (checkout_folder / "Pulumi.prod.yaml").read_text()
    file = str(checkout_folder / "Pulumi.prod.yaml")
    wrong = run(checkout_folder, "plan", "prod", "--from", file)
    assert wrong.status == Exit.USAGE
    assert "> " not in wrong.err
    assert "fix: save one first: python -m sitectl plan SITE --save preview.json" in wrong.err
    over = run(checkout_folder, "plan", "prod", "--save", file)
    assert over.status == Exit.USAGE
    assert "--save would overwrite" in over.err
    assert (checkout_folder / "Pulumi.prod.yaml").read_text() == before


def test_rules_of_two_sites_lead_to_a_plan_of_each(checkout_folder: Path) -> None:
    result = run(checkout_folder, "rules", "lab", "prod")
    assert re.findall(r"^next: python -m sitectl (.+)$", result.out, re.MULTILINE) == ["plan lab", "plan prod"]
