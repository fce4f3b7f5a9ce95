"""Verdicts on what measures a site: what was measured, and what pauses meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict
from sitectl.change.verdicts.workloads import bytes_of, claim_size

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
    restart = verdict(change, Severity.RESTARTS, f"may restart: {paths}", f"{pauses} meanwhile", restarts=1)
    return [*(_resized(change) if change.kind == "Prometheus" else ()), restart]


def _resized(change: Change) -> list[Verdict]:
    """Another size of Prometheus's volume, which the claim that exists does not take."""
    old, new = (claim_size(_template(body)) for body in (change.before, change.after))
    if bytes_of(new) == bytes_of(old) or not bytes_of(old):
        return []
    kept = str((change.after.get("spec") or {}).get("retentionSize", "?"))
    if bytes_of(new) < bytes_of(old):
        what = f"the claim keeps its {old} instead of {new}, and measurements beyond {kept} are deleted"
        reason = (
            "a claim never shrinks: keep monitoring.volume_gib, or delete claim and pod after `up`, and all "
            "measurements with them (sitectl docs observability)"
        )
        return [verdict(change, Severity.IRREVERSIBLE, what, reason)]
    what = f"the claim keeps its {old} instead of {new}, and Prometheus keeps up to {kept} of measurements"
    reason = "its volume fills unless the claim is increased first, by kubectl patch pvc (sitectl docs observability)"
    return [verdict(change, Severity.RESTARTS, what, reason)]


def _template(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of the claims that the operator makes for a server."""
    template: Mapping[str, Any] = ((body.get("spec") or {}).get("storage") or {}).get("volumeClaimTemplate") or {}
    return template


def read_by_it(change: Change) -> list[Verdict]:
    """Monitors and rules: read without a restart."""
    what = {"create": "made", "delete": "deleted", "replace": "deleted and created again"}.get(change.op)
    paths = ", ".join(leaf.path for leaf in change.fields()[:3])
    reason = "counts once Prometheus has read it, within a minute or two; requests are served as before"
    return [verdict(change, Severity.LIVE, what or f"changes {paths}", reason)]
