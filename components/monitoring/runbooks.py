"""Where the runbooks can be read."""

from __future__ import annotations

BASE = "https://example.invalid/docs/runbooks"


def runbook_url(page: str) -> str:
    """The address of a runbook by its name, without its ending."""
    return f"{BASE}/{page}.md"
