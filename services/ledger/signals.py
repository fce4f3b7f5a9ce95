"""When a key may be abused: it is used far more than usual, is refused again and again, or comes from many networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

WINDOW_MINUTES = 10
"""Of requests and refusals. Networks are those of an hour."""
USUAL_DAYS = 7
"""Of what is usual, up to a day ago: abuse that goes on is not usual after an hour."""
LEAST_HOURS = 12
"""With requests, within these days: a key with fewer has no usual rate, and no burst."""

_Count = Annotated[int, Field(ge=1)]


class Thresholds(BaseModel):
    """From what on something is a signal."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    burst_requests: _Count
    """In the window; fewer are no burst, however few are usual."""
    burst_factor: _Count
    """Of what the key had in so much time of its busiest hour."""
    refused_requests: _Count
    """In the window."""
    refused_percent: Annotated[int, Field(ge=1, le=100)]
    """Of its requests; both are needed."""
    networks: _Count
    """In an hour."""


@dataclass(frozen=True, kw_only=True)
class KeyUse:
    """What a key did lately."""

    requests: int = 0
    """In the window, as the two below."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Requests by why they were refused."""
    networks: int = 0
    usual: float | None = None
    """Requests in the window, in its busiest hour; None where too little is known."""


def signals_of(seen: KeyUse, most: Thresholds) -> dict[str, dict[str, Any]]:
    """Signal -> the figures that make it one."""
    signals: dict[str, dict[str, Any]] = {}
    if seen.usual is not None and seen.requests > max(most.burst_requests, most.burst_factor * seen.usual):
        signals["burst"] = {"requests": seen.requests, "usual": round(seen.usual, 1)}
    refused = sum(seen.refused.values())
    if refused >= most.refused_requests and 100 * refused >= most.refused_percent * seen.requests:
        signals["refusals"] = {"requests": seen.requests, "refused": refused, "why": dict(sorted(seen.refused.items()))}
    if seen.networks > most.networks:
        signals["networks"] = {"networks": seen.networks}
    return signals
