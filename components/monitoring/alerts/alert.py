"""One alert, and how it becomes a rule of Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from components.monitoring.runbooks import command

Severity = Literal["page", "ticket", "none"]
"""page: someone must act now. ticket: within days. none: it reaches no one, see Watchdog."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A condition that someone must act on."""

    name: str
    severity: Severity
    expression: str
    minutes: int
    """For so long must it hold."""
    lasts_minutes: int = 0
    """It stays for so long after its cause."""
    summary: str
    """What is wrong, in one sentence; `{{ $labels.model }}` is the model's name."""
    description: str
    """The value with its unit, what it means, and where to look."""
    runbook: str
    """Page in docs/runbooks, without its ending."""

    def rule(self) -> dict[str, Any]:
        """The rule, as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": f"{self.minutes}m"} if self.minutes else {}),
            **({"keep_firing_for": f"{self.lasts_minutes}m"} if self.lasts_minutes else {}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": command(self.runbook),
            },
        }
