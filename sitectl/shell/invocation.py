"""How the user called sitectl, so that each `next:` and `fix:` can be copied as it is printed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from sitectl.shell import home

MODULE = "python -m sitectl"
VARIABLE = "SITECTL_CALLED_AS"
# Of a fix alone: elsewhere the folder may be the user's own, as where a checkout differs from what is installed.
_FIX = re.compile(r'^\s*"?fix"?: .*$', re.MULTILINE)
_FACTS = re.compile(r"(?<![\w./-])stacks/facts/")


def name() -> str:
    """What the user typed for sitectl, as the launcher reports it."""
    return os.environ.get(VARIABLE) or MODULE


def as_called(text: str) -> str:
    """Our texts name the module, and fixes files of a checkout; here with what the user typed, and files that exist."""
    called = text.replace(MODULE, name())
    if home.is_checkout():
        return called
    return _FIX.sub(lambda fix: _FACTS.sub(f"{home.FOLDER}/stacks/facts/", fix[0]), called)


def next_step(command: str, sites: Sequence[str], project: Path | None) -> str:
    """The line that leads on to another command of the same sites, in the checkout that the user named."""
    named = ["--project", str(project)] if project else []
    return f"next: {MODULE} {command} {shlex.join([*sites, *named])}".rstrip()
