"""What the pages tell a reader to look at works on a running site, as it is written there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import session
from lab.paths import CHECKOUT

if TYPE_CHECKING:
    from tests.lab.site.running_site import Site

_PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])
_BLOCKS = [
    (page, block)
    for page in _PAGES
    for block in re.findall(r"^ *```sh check\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("page", "block"), _BLOCKS, ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(_BLOCKS)])
def test_a_documented_look_works(site: Site, page: Path, block: str) -> None:
    for command in block.splitlines():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=CHECKOUT,
            env=session.environment(site.lab),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{page.name}: {command}\n{done.stdout}{done.stderr}"
        # A selector that matches nothing succeeds too; a site without trouble has no events to show.
        silent = "/dev/null" in command or "get events" in command
        assert silent or done.stdout.strip(), f"{page.name}: {command} says nothing; {done.stderr}"
