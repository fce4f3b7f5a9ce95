"""Recorded previews of a site with a gatekeeper, a canary and a range of replicas, asked again of the engine.

KEDA is none of this lab: the test states in its place that a range is in force. `UPDATE_GOLDEN=1` records them again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import yaml

from lab import session
from lab.install.parts import RELEASE_FILES
from tests.fixtures.previews import kept
from tests.fixtures.previews.record import preview, trimmed
from tests.fixtures.previews.scenarios import SCENARIOS, with_canary
from tests.lab.plain_site import plain_text
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.conftest import Platforms
from tests.lab.site.replicas import MODELS
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY, Document
from tests.lab.site.test_sitectl_on_the_engine import judged

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 3", "opening 8", "C.06")]

SCALED = "qwen3-32b"
# Systems that the site has from elsewhere: the cluster needs their definitions.
_BROUGHT = ("keda", "prometheus-operator")


def site_text(edit: Callable[[Document], None]) -> str:
    document = yaml.safe_load(plain_text())
    edit(document["config"][KEY])
    return yaml.safe_dump(document, sort_keys=False)


def _unscaled(site: Document) -> None:
    """Until the cluster has the definitions. With the canary, or the other model would leave no node whole for it."""
    with_canary(site)
    del site["models"][SCALED]["server"]["scaling"], site["monitoring"], site["autoscaling"]


@pytest.fixture(scope="module")
def site(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    file = tmp_path_factory.mktemp("canaries") / "Pulumi.lab.yaml"
    file.write_text(site_text(_unscaled))
    site = platforms.of("site-canaries", site_file=file)
    charts = site.lab.bundle / "charts"
    for name in _BROUGHT:
        released = charts / f"{name}-{RELEASE_FILES[name].version}.yaml"
        kubectl(site.lab, "apply", "--server-side", "-f", str(released))
    file.write_text(site_text(with_canary))
    with _ranges_in_force(site):
        session.run_pulumi(site.lab, "up", "--yes", "--skip-preview", "--stack", session.STACK)
    yield site
    platforms.end()


@contextmanager
def _ranges_in_force(site: Site) -> Iterator[None]:
    """What KEDA writes once it has read a ScaledObject."""
    over = threading.Event()
    status = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})

    def states() -> None:
        while not over.wait(1):
            listed = kubectl(site.lab, "get", "-n", MODELS, "scaledobjects", "--ignore-not-found", "-o", "name")
            if SCALED in listed:
                kubectl(
                    site.lab,
                    "patch",
                    "-n",
                    MODELS,
                    listed.strip(),
                    "--subresource=status",
                    "--type=merge",
                    "-p",
                    status,
                )
                return

    thread = threading.Thread(target=states, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("name", sorted(name for name, scenario in SCENARIOS.items() if scenario.over_canary))
def test_the_recordings_are_what_the_engine_reports(site: Site, name: str) -> None:
    shown = trimmed(preview(site.lab, SCENARIOS[name]))
    if os.environ.get("UPDATE_GOLDEN"):
        kept.write(name, shown)
    assert judged(shown) == judged(kept.read(name))
