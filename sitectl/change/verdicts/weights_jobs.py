"""Verdicts on the Jobs that bring a model's weights and remove earlier ones: no server runs in them."""

from __future__ import annotations

from typing import Any

from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict

_WHOLE = "servers run on; what is whole in its place is compared, and not downloaded again"


def job(change: Change) -> list[Verdict]:
    """One that brings weights, or one that removes earlier ones."""
    command: list[Any] = _container(change).get("command") or [""]
    prunes = command[-1] == "prune"
    match change.op:
        case "delete":
            what, reason = "is removed with what it has logged", "the weights that it brought stay"
        case "create" if prunes:
            what = "removes earlier commits, once all servers run on the new one"
            reason = "to go back to one of them is a download; storage.weights.revisions keeps more"
        case "create":
            what, reason = "brings weights before servers start on them", _WHOLE
        case "replace":
            what, reason = f"runs again: {', '.join(change.replaced_by)}", _WHOLE
        case _:
            what, reason = "changed in place", "a Job that has ended does not run again"
    return [verdict(change, Severity.LIVE, what, reason)]


def _container(change: Change) -> dict[str, Any]:
    pod: dict[str, Any] = (((change.body.get("spec") or {}).get("template") or {}).get("spec")) or {}
    containers: list[dict[str, Any]] = pod.get("containers") or [{}]
    return containers[0]
