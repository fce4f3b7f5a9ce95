"""What is wrong with a site, as the engine prints it: without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pulumi

from floor.problems import SiteError


@contextmanager
def reported_by_the_engine() -> Iterator[None]:
    """A site's errors become the engine's own, whose language host prints their text alone."""
    try:
        yield
    except SiteError as error:
        raise pulumi.RunError(str(error)) from error
