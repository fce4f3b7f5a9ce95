"""Labs for tests: the checkout's own one, and a spare one that a test may break."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cluster import down, network, up
from lab.paths import Lab
from tests.lab.lab_index import free_index


def pytest_configure() -> None:
    """Leave a lab alone that runs out of another folder of this machine, be it somebody's or a killed test's."""
    os.environ.setdefault("LAB_INDEX", str(free_index(Lab.from_environment().home, (0, 1, 2, 3))))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """This checkout's lab with its machines on; taken down afterwards if the tests brought it up."""
    own = Lab.from_environment()
    was_up = network.owner(own) == own.home
    up.bring_up(own)
    yield own
    if not was_up:
        down.take_down(own)


@pytest.fixture
def lab_of_tools(tmp_path: Path) -> Lab:
    """The checkout's tools with a state of its own; it is never up."""
    tools = Lab.from_environment()
    own = Lab(home=tmp_path / "lab", cache=tools.cache)
    own.home.mkdir()
    own.bin.symlink_to(tools.bin)
    return own


@pytest.fixture(scope="module")
def spare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A second lab on this machine, down at first, whose tools are the checkout's."""
    home = tmp_path_factory.mktemp("lab")
    spare = replace(Lab.from_environment(), home=home, index=free_index(home, (7, 5)))
    spare.bin.symlink_to(Lab.from_environment().bin)
    yield spare
    down.take_down(spare)
