"""What keeps definitions out of a cluster."""

from __future__ import annotations

from floor.problems import ProblemError


class DefinitionsError(ProblemError):
    """Definitions that are not the pinned ones, are not ours, or that the cluster did not take."""
