"""How the user called sitectl, so that each `next:` and `fix:` can be copied as it is printed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

MODULE = "python -m sitectl"
VARIABLE = "SITECTL_CALLED_AS"


def name() -> str:
    """What the user typed for sitectl, as the launcher says it."""
    return os.environ.get(VARIABLE) or MODULE


def as_called(text: str) -> str:
    """Our texts name the module; here with what the user typed in its place."""
    return text.replace(MODULE, name())


def next_step(command: str, sites: Sequence[str], project: Path | None) -> str:
    """The line that leads on to another command of the same sites, in the checkout that the user named."""
    named = ["--project", str(project)] if project else []
    return f"next: {MODULE} {command} {shlex.join([*sites, *named])}".rstrip()
