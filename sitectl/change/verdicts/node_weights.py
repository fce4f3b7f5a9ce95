"""Verdicts on weights that are on each node's own disk: a volume, the claim on it, and what fills the nodes."""

from __future__ import annotations

from typing import Any

from components.specs.weights import NODE_CLASS, WEIGHTS
from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict

_FILES_STAY = "it only names folders of the nodes: the files stay on their disks until you delete them there"


def is_of_nodes(change: Change) -> bool:
    """Whether a claim or volume is a folder of each node."""
    spec: dict[str, Any] = change.body.get("spec") or {}
    return spec.get("storageClassName") == NODE_CLASS


def is_of_weights(change: Change) -> bool:
    """Whether an object writes a model's weights."""
    labels = (change.body.get("metadata") or {}).get("labels") or {}
    return labels.get("app.kubernetes.io/name") == WEIGHTS


def volume(change: Change) -> list[Verdict]:
    """A volume, or the claim on it."""
    match change.op:
        case "create":
            what, reason = "uses a folder of each GPU node", "new; empty nodes are filled before servers start"
        case "delete":
            what, reason = "no longer uses the folder of each GPU node", _FILES_STAY
        case "replace":
            what, reason = f"uses another folder of each GPU node: {', '.join(change.replaced_by)}", _FILES_STAY
        case _:
            what, reason = "changed in place", _FILES_STAY
    return [verdict(change, Severity.LIVE, what, reason)]


def daemon_set(change: Change) -> list[Verdict]:
    """What fills each node."""
    match change.op:
        case "create":
            what, reason = "fills each GPU node", "new; the source serves every node, and servers wait for theirs"
        case "delete":
            what, reason = "fills no node any more", "nodes that join get no weights"
        case _:
            what, reason = "brings what is wanted to each GPU node", "a node that has it already downloads nothing"
    return [verdict(change, Severity.LIVE, what, reason)]
