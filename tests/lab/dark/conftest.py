"""One lab that comes up from a bundle, after the publishers are shut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab import deploy
from lab.paths import SITE_FILE, Lab
from lab.site import down, up
from tests.lab.dark.dark_site import SITE, DarkSite
from tests.lab.dark.publishers import publishing


@pytest.fixture(scope="module")
def packed(empty_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DarkSite]:
    """A site whose bundle is packed, and whose publishers are gone."""
    folder = tmp_path_factory.mktemp("dark")
    # The project has a stack file of its own.
    site = DarkSite(lab=replace(empty_lab, site_file=SITE_FILE), folder=folder)
    site.write()
    with publishing(site.lab, folder / "publishers") as publishers:
        site.publish(publishers)
        site.pack(publishers)
    yield site
    site.remove()


@pytest.fixture(scope="module")
def dark(packed: DarkSite) -> Iterator[DarkSite]:
    """The same, up and proven to answer."""
    up.bring_up(packed.lab, bundle=packed.bundle)
    try:
        packed.sitectl("bundle", "verify", str(packed.bundle))
        packed.push()
        packed.sitectl("bundle", SITE, "--from", str(packed.bundle / "charts"))
        packed.pulumi("up", "--yes")
        front = deploy.front(packed.lab)
        for model in front.models:
            deploy.ask(front, model=model)
        yield packed
    finally:
        down.take_down(packed.lab)
