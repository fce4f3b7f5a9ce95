"""A scenario that a site cannot have."""

from __future__ import annotations


class NoScenarioError(Exception):
    """The scenario does not fit this site: what, got, allowed, fix."""

    def __init__(self, what: str, *, got: str = "", allowed: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix
