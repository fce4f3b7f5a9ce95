"""What the portal's pods show Prometheus, which alerts and a dashboard ask for."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from stacks.facts import metrics
from tests import exposition
from tests.unit.services import portal_rig
from tests.unit.services.portal_rig import Portal

pytestmark = [pytest.mark.row("002.09"), pytest.mark.processes]


def test_what_alerts_ask_of_the_portal_is_what_it_exposes(tmp_path: Path) -> None:
    """A part that fails is counted by its name, and no metric of either has another label than it is listed with."""
    with portal_rig.running(tmp_path) as portal:
        partly = Portal(portal.folder, portal.directory, portal.services, portal.issuer)
        partly.start(ledger="http://127.0.0.1:9")
        try:
            assert partly.logged_in("ann").get("/usage").status_code == 503
            text = httpx.get(f"{partly.url}/metrics").text
        finally:
            partly.end()
    listed = metrics.load()["portal"]
    assert exposition.differences(listed.model_copy(update={"rare": ()}), exposition.read(text)) == []
    assert 'portal_upstream_failures_total{part="ledger of usage"}' in text
