"""A request on its way through the simulation, and where it ended."""

from __future__ import annotations

from typing import Literal

from stacks.whatif.traffic import Arrival

End = Literal["", "answered", "gateway", "picker", "engine", "nowhere", "lost"]
"""Empty while it is under way. gateway, picker, engine: refused there. nowhere: no replica is there. lost: its replica
was lost while it was under way, or just before."""


class Job:
    """One request and what became of it. Seconds since the simulation's begin."""

    __slots__ = (
        "admitted",
        "answered",
        "arrival",
        "began_at",
        "cached",
        "came_s",
        "end",
        "ended_s",
        "envoy",
        "first_s",
        "left",
        "per_step",
        "phase",
        "replica",
        "written",
    )

    def __init__(self, arrival: Arrival, phase: int) -> None:
        self.arrival = arrival
        self.phase = phase
        """PromptPart of the simulation in which it came."""
        self.end: End = ""
        self.envoy = self.replica = 0
        self.left = 0
        """Prompt tokens that are to be computed."""
        self.cached = -1
        """Prompt tokens that were in the cache when it started; -1 before."""
        self.came_s = 0.0
        """When its scheduler got it."""
        self.written = 0
        """Answer tokens before the scheduler threw it out for want of room."""
        self.per_step = 0.0
        """Answer tokens that a step gives it, on average over the steps that its answer takes."""
        self.began_at = 0
        """The scheduler's count of steps at its first token since."""
        self.admitted = 0
        """Its place among all that its scheduler started."""
        self.first_s = self.ended_s = float("inf")
        """Of its first token; of its end, or of its last token before it was thrown out."""
        self.answered = 0
        """Tokens."""
