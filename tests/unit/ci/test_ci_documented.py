"""The pages about sitectl, CI and rules: every command of theirs is run here, in their order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ci import evidence, offline, previews
from policy.listing import RULES
from sitectl.shell.cli import COMMAND_LINE, COMMANDS
from sitectl.shell.cli import main as sitectl
from sitectl.shell.errors import MEANINGS
from tests import documented
from tests.command_lines import refusal
from tests.documented import RUN_WHOLE
from tests.unit.sitectl.sites_to_work_on import PROGRAM, ROOT, git, make_checkout, stand_in_pulumi

pytestmark = pytest.mark.row("C.06")

DOCS = ROOT / "docs"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout under git without a site, as the folder that we are in; `pulumi` prints a recording."""
    folder = make_checkout(tmp_path / "place", sites=(), copied=PROGRAM)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "no site yet")
    stand_in_pulumi(tmp_path, "replica-cut", monkeypatch)
    monkeypatch.chdir(folder)
    return folder


PROGRAMS: Mapping[str, Callable[[list[str]], int]] = {
    "sitectl": sitectl,
    "ci.offline": offline.main,
    "ci.previews": previews.main,
    "ci.evidence": evidence.main,
}


@pytest.mark.slow
def test_the_pages_commands_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unchanged, one page after the other, from a checkout without a site."""
    ran = 0
    for page in RUN_WHOLE:
        # Those of a shell are run by tests that test_docs_commands.py finds.
        for command in (line for line in documented.commands(ROOT / page) if line.startswith("python -m ")):
            python, module, program, *words = shlex.split(command)
            assert (python, module) == ("python", "-m"), command
            status = PROGRAMS[program](words)
            printed = capsys.readouterr()
            assert status == 0, f"{page}: {command}\n{printed.out}{printed.err}"
            assert printed.out, f"{page}: {command} says nothing"
            ran += 1
            if "init" in words:
                git(place, "add", "-A")
                git(place, "commit", "-qm", "a site")
    assert ran > 20


def test_the_reference_says_what_help_says() -> None:
    text = (DOCS / "sitectl.md").read_text()
    assert dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", text, re.MULTILINE)) == dict(COMMANDS)
    for status, meaning in MEANINGS.items():
        assert f"| {status.value} | {meaning} |" in text


def test_the_rules_are_reported_as_they_are() -> None:
    text = (DOCS / "how-to" / "waive-a-rule.md").read_text()
    reported = dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", text, re.MULTILINE))
    assert reported == {rule.name: rule.says + (" Advice." if rule.level == "advice" else "") for rule in RULES}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_sitectl_is_asked_for_what_it_can_do(page: Path) -> None:
    for command_line in re.findall(r"python -m sitectl ([^`|\n]+)", re.sub(r"\s*\\\n\s*", " ", page.read_text())):
        words = shlex.split(command_line.partition("  ")[0].partition("#")[0])
        assert refusal(COMMAND_LINE, words) == "", f"python -m sitectl {command_line}"
