"""Where the runbooks can be read: links of alerts and dashboards lead there."""

from __future__ import annotations

# The pages of this project have no address of their own yet; this name is reserved and leads nowhere (RFC 2606).
BASE = "https://inference-platform.example/docs/runbooks"


def runbook_url(page: str) -> str:
    """The address of a runbook by the name of its file, without the ending."""
    return f"{BASE}/{page}.md"
