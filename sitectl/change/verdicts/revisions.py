"""Verdicts on a canary or dedicated replicas that leave a model which stays: its other replicas serve on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from floor.revision_ids import RevisionId
from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, model_of, own_name

_REASON = "the model's other replicas take its requests from then on"
# What goes beside the pods, by its kind; None where the verdict's own words hold.
_BESIDE = {
    "AIGatewayRoute": "the revision's route goes",
    "InferencePool": "the revision's pool goes",
    "BackendTrafficPolicy": "the limits of the revision's route go",
    "Deployment": None,
}


def leaving(changes: Sequence[Change]) -> frozenset[str]:
    """Models that can no longer be called after these changes."""
    return frozenset(
        own_name(change.body) for change in changes if change.kind == "AIGatewayRoute" and change.op == "delete"
    )


def served_on(change: Change, judged: list[Verdict], gone: frozenset[str]) -> list[Verdict]:
    """The verdicts on a change, which know of no other replicas. gone: models that leave."""
    revision = RevisionId.of(model_of(change) or own_name(change.body))
    beside = change.kind in _BESIDE and revision.name != revision.model and revision.model not in gone
    if change.op != "delete" or not beside:
        return judged
    ending = model_of(change) == own_name(change.body) and change.kind == "Deployment"
    severity = Severity.RESTARTS if ending else Severity.LIVE
    reason = f"{_REASON}; streams there get their drain time, and their caches are lost" if ending else _REASON
    return [replace(row, severity=severity, what=_BESIDE[change.kind] or row.what, reason=reason) for row in judged]
