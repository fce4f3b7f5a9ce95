"""The lab's platform for each group of tests, made by the checked-in program or, for one group, by an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import deploy, session
from lab.cluster import network
from lab.paths import CHECKOUT, SITE_FILE, Lab
from lab.site import down, up
from lab.vllm_cpu import site as vllm_site
from tests.lab.groups import MEASURED, REAL_ENGINES, group_of
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site


class Platforms:
    """One platform at a time: that of the group whose tests run."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keep = network.owner(lab) == lab.home
        self._now: tuple[str, Site] | None = None

    def of(self, group: str, *options: str, project: Path = CHECKOUT, site_file: Path | None = None) -> Site:
        """A platform that no other group has touched; in a lab that was up before the tests, the one that is there.

        project: whose program makes it. options: of its `pulumi up`. site_file: in place of the group's own.
        """
        if self._now is None or (self._now[0] != group and not self._keep):
            self.end()
            lab = replace(self._lab, site_file=SITE_FILE) if group in MEASURED else self._lab
            if site_file is not None:
                lab = replace(lab, site_file=site_file)
            if group in REAL_ENGINES:
                lab = vllm_site.choose(lab)
            up.bring_up(lab)
            # A preview costs as much as a part of the `up`; to see that one of a whole site passes, few are enough.
            previewed = () if group in MEASURED else ("--skip-preview",)
            session.run_pulumi(lab, "up", "--yes", *previewed, "--stack", session.STACK, *options, project=project)
            front = deploy.front(lab)
            for model in front.models:
                deploy.ask(front, model=model)
            self._now = group, Site(lab=lab, front=front)
        return self._now[1]

    def end(self) -> None:
        """Take the lab down, unless it was up before the tests."""
        if not self._keep:
            down.take_down(self._lab)


@pytest.fixture(scope="session")
def platforms() -> Iterator[Platforms]:
    own = Platforms(Lab.from_environment())
    yield own
    own.end()


@pytest.fixture(scope="module")
def site(platforms: Platforms, request: pytest.FixtureRequest) -> Site:
    """The platform after `pulumi up`, proven to answer."""
    return platforms.of(group_of(request.node.path))


@pytest.fixture(scope="module")
def cluster(site: Site) -> Cluster:
    """The pods behind the gateway."""
    return Cluster(site)
