"""The page on stand-ins names, for each line, tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "provider-stand-ins.md"
FOLDERS = {
    "U": [CHECKOUT / "tests" / "unit" / "plugin_kubernetes", CHECKOUT / "tests" / "unit" / "plugin_command"],
    "L": [CHECKOUT / "tests" / "lab"],
}


def names_of_tests(folders: list[Path]) -> str:
    """Names of all tests, as text to search in."""
    files = [file for folder in folders for file in folder.rglob("test_*.py")]
    return "\n".join(name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("tier", FOLDERS)
def test_each_named_test_exists(tier: str) -> None:
    known = names_of_tests(FOLDERS[tier])
    cells = [line.rstrip(" |").rpartition(" | ")[2] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = [
        name
        for cell in cells
        for part in re.findall(rf"\b{tier} ((?:`\w+`(?:, )?)+)", cell)
        for name in re.findall(r"`(\w+)`", part)
    ]
    assert len(named) > 10
    assert [name for name in named if name not in known] == []
