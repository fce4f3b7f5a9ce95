"""The lab's platform, brought up once for all tests of this folder by the checked-in program and stack file.

Tests that take something away for good (a destroyed stack, a replaced key) carry the mark `last` and run last.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import deploy, session
from lab.paths import Lab
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@pytest.fixture(scope="session")
def site(lab: Lab) -> Iterator[Site]:
    """The platform after `pulumi up`, proven to answer."""
    session.run_pulumi(lab, "up", "--yes", "--skip-preview", "--stack", session.STACK)
    front = deploy.front(lab)
    for model in front.models:
        deploy.ask(front, model=model)
    yield Site(lab=lab, front=front)


@pytest.fixture(scope="session")
def cluster(site: Site) -> Cluster:
    """The pods behind the gateway."""
    return Cluster(site)
