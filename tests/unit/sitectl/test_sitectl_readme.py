"""The first screen of the README is real output: of the proof, and of what CI posts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from sitectl.shell.terminal import wrapped
from tests import documented
from tests.documented import ROOT
from tests.unit.sitectl.sites_to_work_on import PROGRAM, git, make_checkout, run

pytestmark = pytest.mark.processes

README = ROOT / "README.md"
WIDTH = 118


@pytest.fixture
def reviewed(tmp_path: Path) -> Path:
    """A checkout with the reference site in a commit."""
    folder = make_checkout(tmp_path / "reviewed", sites=("prod",), copied=PROGRAM)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a site")
    return folder


def not_in_order(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Lines that the output lacks, or has before the one above."""
    rest = iter(printed)
    return [line for line in shown if line not in rest]


def test_the_proof_on_the_first_screen_is_printed_so(checkout_folder: Path) -> None:
    program, *words = documented.argv("bin/sitectl proof prod")
    assert program == "bin/sitectl"
    result = run(checkout_folder, *words)
    assert result.status == Exit.OK, result.err
    (shown,) = (content for _, content in documented.fences(README) if content.startswith("glm-5-1: "))
    lines = shown.splitlines()
    assert len(lines) > 8 and max(map(len, lines)) <= WIDTH
    assert not_in_order(lines, wrapped(result.out, WIDTH).splitlines()) == []


def test_the_comment_on_the_first_screen_is_posted_so(reviewed: Path) -> None:
    file = reviewed / "Pulumi.prod.yaml"
    before, two, after = file.read_text().partition("          replicas: 2\n")
    assert two and "glm-5-1:" in before
    file.write_text(f"{before}          replicas: 1\n{after}")
    result = run(reviewed, "diff", "HEAD", "--markdown", str(reviewed / "diff.md"))
    assert result.status == Exit.OK, result.err
    posted = (reviewed / "diff.md").read_text().replace("\u200b", "").splitlines()
    screen = README.read_text().partition("What [CI]")[2].partition("\n## ")[0]
    rows = [line for line in screen.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert not_in_order(rows, posted) == []
