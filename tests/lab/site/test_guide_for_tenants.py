"""The programs of the guide for tenants against a running site; Anthropic's needs a gatekeeper (test_gatekeeper)."""

from __future__ import annotations

import pytest

from tests.lab.site import guide
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("000.08")


@pytest.mark.parametrize("module", ["openai", "httpx"])
def test_the_guide_for_tenants_works(site: Site, module: str) -> None:
    (program,) = guide.programs(module)
    guide.run(program, site, site.key)
