"""`sitectl drift` on a site with all its parts: what charts and their controllers write is no drift."""

from __future__ import annotations

import pytest

from tests.lab.site.running_site import Site
from tests.lab.site.test_drift import drift

pytestmark = pytest.mark.row("opening 13", "C.06")


def test_an_untouched_site_has_not_drifted(site: Site) -> None:
    assert drift(site) == (0, [])
