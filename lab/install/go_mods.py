"""What a go.mod requires."""

from __future__ import annotations

import re
from pathlib import Path


def required_version(go_mod: Path, module: str) -> str:
    """The version of `module` that a go.mod requires; ValueError when it does not."""
    match = re.search(rf"^(?:require\s+|\s+){re.escape(module)}\s+(v\S+)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{go_mod} does not require {module}")
    return match.group(1)


def required_go(go_mod: Path) -> tuple[int, ...]:
    """The `go` line of a go.mod, as (1, 26, 7)."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{go_mod} has no go line")
    return tuple(int(number) for number in match.group(1).split("."))
