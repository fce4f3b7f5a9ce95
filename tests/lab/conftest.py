"""Labs for tests: the checkout's own one, and a spare one that a test may break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.cluster import down, network, up
from lab.paths import Lab

# Far from 0, the index of the lab that an engineer has running.
SPARE_INDEX = 7


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """This checkout's lab with its machines on; taken down afterwards if the tests brought it up."""
    own = Lab.from_environment()
    was_up = network.owner(own) == own.home
    up.bring_up(own)
    yield own
    if not was_up:
        down.take_down(own)


@pytest.fixture(scope="module")
def spare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A second lab on this machine, down at first, whose tools are the checkout's."""
    spare = replace(Lab.from_environment(), home=tmp_path_factory.mktemp("lab"), index=SPARE_INDEX)
    spare.bin.symlink_to(Lab.from_environment().bin)
    yield spare
    down.take_down(spare)
