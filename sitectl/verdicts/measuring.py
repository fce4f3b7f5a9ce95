"""Verdicts on what measures a site: what was measured, and what pauses meanwhile."""

from __future__ import annotations

from sitectl.changes import Change
from sitectl.verdicts.model import Severity, Verdict, verdict

# What goes with each for good, and what pauses while it restarts.
_SERVERS = {
    "Prometheus": ("deletes what was measured, with its volume", "nothing is measured, and no alert fires"),
    "Alertmanager": ("deletes silences, with their volume", "no alert is sent"),
}


def server(change: Change) -> list[Verdict]:
    """Prometheus or Alertmanager: one pod with a volume. Nothing that serves a request waits for it."""
    lost, pauses = _SERVERS[change.kind]
    if change.op in ("delete", "replace"):
        cause = f" ({', '.join(change.replaced_by)} changes)" if change.replaced_by else ""
        return [verdict(change, Severity.IRREVERSIBLE, f"{lost}{cause}", f"from then on {pauses}", restarts=1)]
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "starts", "new")]
    paths = ", ".join(leaf.path for leaf in change.fields()[:3])
    return [verdict(change, Severity.RESTARTS, f"may restart: {paths}", f"{pauses} meanwhile", restarts=1)]


def read_by_it(change: Change) -> list[Verdict]:
    """Monitors and rules: read without a restart."""
    what = {"create": "made", "delete": "deleted", "replace": "deleted and created again"}.get(change.op)
    paths = ", ".join(leaf.path for leaf in change.fields()[:3])
    reason = "counts once Prometheus has read it, within a minute or two; requests are served as before"
    return [verdict(change, Severity.LIVE, what or f"changes {paths}", reason)]
