"""One checkout for tests that change nothing of it, programs that run once for each site's text, and shared proofs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.proven_once import each_order_is_proven_once
from tests.unit.sitectl.sites_to_work_on import each_program_runs_once, make_checkout

__all__ = ["each_order_is_proven_once", "each_program_runs_once"]


@pytest.fixture(scope="session")
def checkout_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the sites lab and prod."""
    return make_checkout(tmp_path_factory.mktemp("checkout"))
