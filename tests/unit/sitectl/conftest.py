"""One checkout for tests that change nothing of it, and programs that run once for each site's text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sitectl import checkout
from tests.unit.proven_once import each_order_is_proven_once
from tests.unit.sitectl.sites_to_work_on import make_checkout, remembering, share_renders

__all__ = ["each_order_is_proven_once"]


@pytest.fixture(scope="session")
def checkout_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the sites lab and prod."""
    return make_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(autouse=True, scope="module")
def each_program_runs_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Renders of the same program and site are shared by the tests of a run."""
    share_renders(tmp_path_factory.getbasetemp())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkout, "declare", remembering)
        yield
