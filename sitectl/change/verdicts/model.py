"""What a verdict is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from components.specs.inference_pool import picked_model
from sitectl.change.changes import Change


class Severity(IntEnum):
    """The worst first; the order in which people read."""

    IRREVERSIBLE = 0
    """Something is lost that no later `up` brings back."""
    REPLACED = 1
    """Something is taken away or created again, and its users notice."""
    RESTARTS = 2
    """Pods or streams end and begin again."""
    LIVE = 3
    """In place, without an interruption."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One meaning of one change."""

    severity: Severity
    resource: str
    what: str
    """What happens, as text."""
    reason: str
    """Why it is as severe as it is."""
    model: str = ""
    """The revision that it concerns, by its name; empty for the whole site."""
    tenants: tuple[str, ...] = ()
    """Tenants that the change itself names; those of a model are added by the report."""
    gpus: float = 0
    """GPUs that the site holds more (or fewer)."""
    restarts: int = 0
    """Pods that stop and start again, or stop for good."""
    cold_start_s: int = 0
    """Longest time until the last of them serves, as the startup probes bound it."""
    rounds: int = 0
    """How many replicas start one after the other; 0 where several start at once."""
    expected_start_s: int | None = None
    """When the last of them serves by the model's proof; None where none is known."""


def verdict(
    change: Change,
    severity: Severity,
    what: str,
    reason: str,
    *,
    tenants: Sequence[str] = (),
    gpus: float = 0,
    restarts: int = 0,
    cold_start_s: int = 0,
    rounds: int = 0,
) -> Verdict:
    """A verdict on `change`, with its resource and model filled in."""
    return Verdict(
        severity=severity,
        resource=change.label,
        what=what,
        reason=reason,
        model=model_of(change),
        tenants=tuple(tenants),
        gpus=gpus,
        restarts=restarts,
        cold_start_s=cold_start_s,
        rounds=rounds,
    )


_OF_A_MODEL = ("AIGatewayRoute", "InferencePool", "AIServiceBackend", "Backend")


def model_of(change: Change) -> str:
    """The revision that a resource belongs to, by its name; empty for what all of them share."""
    return stated_model(change.body) or (own_name(change.body) if change.kind in _OF_A_MODEL else "")


def stated_model(body: Mapping[str, Any]) -> str:
    """The revision that an object names by its label, or as its picker's; empty where it names none."""
    labels = (body.get("metadata") or {}).get("labels") or {}
    own = own_name(body)
    picked = picked_model(own)
    return str(labels.get("app.kubernetes.io/instance") or (picked if picked != own else ""))


def own_name(body: Mapping[str, Any]) -> str:
    """Of an object; empty where it has none."""
    return str((body.get("metadata") or {}).get("name", ""))
