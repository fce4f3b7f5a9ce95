"""Racks with a program on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.install import install
from lab.machines.spec import Hardware
from lab.paths import Lab
from tests.lab.cluster_program.rack_site import CANARY
from tests.lab.cluster_program.rig import Rig, new_rig

NewRig = Callable[..., Rig]


@pytest.fixture(scope="module")
def tools() -> None:
    install(Lab.from_environment(), ["talos-checker"])


@pytest.fixture
def make_rig(tools: None, tmp_path: Path) -> Iterator[NewRig]:
    """Makes rigs of the hardware that is named, with the site's secret set."""
    made: list[Rig] = []

    def make(*hardware: Hardware) -> Rig:
        rig = new_rig(tmp_path / f"rig{len(made)}", *hardware)
        made.append(rig)
        rig.pulumi("config", "set", "--secret", "registry-password", CANARY)
        return rig

    yield make
    for rig in made:
        rig.rack.__exit__(None, None, None)
