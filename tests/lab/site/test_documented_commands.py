"""What the pages tell a reader to look at works on a running site, as it is written there."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import session
from lab.paths import CHECKOUT
from tests import documented
from tests.documented import PAGES

if TYPE_CHECKING:
    from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("000.06")

_BLOCKS = [(page, block) for page in PAGES for language, block in documented.fences(page) if language == "sh check"]


def run(site: Site, *words: str) -> str:
    """What a command prints in the checkout, as with the lab's environment; fails with what it says."""
    done = subprocess.run(
        words, cwd=CHECKOUT, env=site.environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("page", "block"), _BLOCKS, ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(_BLOCKS)])
def test_a_documented_look_works(site: Site, page: Path, block: str) -> None:
    for command in block.splitlines():
        reported = run(site, "bash", "-c", command)
        # A selector that matches nothing succeeds too; a site without trouble has no events to show.
        silent = "/dev/null" in command or "get events" in command
        assert silent or reported.strip(), f"{page.name}: {command} says nothing"


def test_the_printed_environment_makes_pulumi_mean_the_lab(site: Site) -> None:
    by_hand = documented.shell('eval "$(.venv/bin/python -m lab env)"')
    reported = run(site, "bash", "-c", f"{by_hand} && pulumi stack --show-name")
    assert reported.splitlines()[-1] == session.STACK
