"""One checkout for tests that change nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sitectl.sites_to_work_on import make_checkout


@pytest.fixture(scope="session")
def checkout_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the sites lab and prod."""
    return make_checkout(tmp_path_factory.mktemp("checkout"))
