"""How the user called sitectl, so that each `next:` and `fix:` can be copied as it is printed."""

from __future__ import annotations

import os

MODULE = "python -m sitectl"
VARIABLE = "SITECTL_CALLED_AS"


def name() -> str:
    """What the user typed for sitectl, as the launcher says it."""
    return os.environ.get(VARIABLE) or MODULE


def as_called(text: str) -> str:
    """Our texts name the module; here with what the user typed in its place."""
    return text.replace(MODULE, name())
