"""What keeps a file out of the bundle."""

from __future__ import annotations


class BundleError(Exception):
    """A file that cannot be had, or is not the pinned one."""

    def __init__(self, what: str, *, fix: str, got: str = "", allowed: str = "") -> None:
        super().__init__(what)
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix
