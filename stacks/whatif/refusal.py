"""A scenario that a site cannot have."""

from __future__ import annotations

from collections.abc import Sequence

from floor.problems import ProblemError, meant, nearest


class NoScenarioError(ProblemError):
    """The scenario does not fit this site."""


def no_such(kind: str, unknown: Sequence[str], known: Sequence[str]) -> NoScenarioError:
    """For names of that kind that the site does not have, with the nearest one that it has."""
    near = nearest(unknown[0], known)
    return NoScenarioError(
        f"the site has no such {kind}" + meant(near),
        got=", ".join(unknown),
        allowed=", ".join(known) or f"none: the site has no {kind}",
        fix=f"write {near}" if near else "",
    )
