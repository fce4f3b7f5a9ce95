"""The production site in a spare lab: its machines are a cluster with nothing on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.paths import Lab
from tests.lab.prod.prod_site import ProdSite, new_prod_site


@pytest.fixture(scope="module")
def prod(spare_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProdSite]:
    site = new_prod_site(spare_lab, tmp_path_factory.mktemp("prod"), Lab.from_environment())
    site.make_cluster()
    yield site
