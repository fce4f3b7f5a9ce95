"""What keeps a file out of the bundle."""

from __future__ import annotations

from floor.problems import ProblemError


class BundleError(ProblemError):
    """A file that cannot be had, or is not the pinned one."""
