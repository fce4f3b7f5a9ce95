"""A Talos version goes over a site that serves: node by node, and no request of a model with two replicas fails.

The site gets a machine more for everything that needs no GPU, since what runs on the only such node has nowhere to go
while that one is drained. Nothing is put back: the next `up` of the checked-in program does that, node by node.

Longhorn is emulated beside it, on the nodes with GPUs: it holds drains, moves the server of the model's volume with
each drain of its node, and restarts who mounts it, as far as the reference site's values and classes let it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.models.weights import claim_name
from lab import session
from lab.cluster.emulated_longhorn_manager import EmulatedLonghorn
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import Lab
from tests.lab.emulated_storage import emulated_longhorn, storing
from tests.lab.site.project_copies import copy_project
from tests.lab.site.pulumi_runs import Pulumi
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import make_room
from tests.lab.site.under_load import Load

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.11", "000.20")]

MODEL = "qwen3-32b"
STREAM_TOKENS = 150
VERSION = "v1.13.7"
DRIVERS = {"production": "595.71.05", "lts": "580.173.02"}
STORING = ["hgx-1", "hgx-2", "hgx-3", "hgx-4"]
ORDER = ["cp-1", *STORING, "infra-1"]
_LOOK_EVERY_S = 0.2


@dataclass(kw_only=True)
class Seen:
    """What was seen of the machines while the version went over the site."""

    boots: list[tuple[float, str]] = field(default_factory=list)
    """When which node had booted again."""
    away: list[set[str]] = field(default_factory=list)
    """Nodes that were not ready, each time that this changed."""
    began: float = field(default_factory=time.monotonic)


@pytest.fixture
def bumped(tmp_path: Path) -> Path:
    """The project with another Talos version, and the drivers that go with it."""
    project = copy_project(tmp_path / "project", "stacks")
    file = project / "stacks" / "facts" / "versions.yaml"
    nvidia = {fork: {"driver": version, "fabric_manager": version} for fork, version in DRIVERS.items()}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"talos": VERSION, "nvidia": nvidia}))
    return project


def machines(lab: Lab) -> dict[str, dict[str, Any]]:
    """The site's machines by the name of their node."""
    shown = ask(lab_rack.folder(lab), {"action": "show"})
    return {machine["hostname"]: machine for machine in shown if machine["configured"]}


async def _watch(lab: Lab, seen: Seen) -> None:
    boots = {name: machine["boot_id"] for name, machine in machines(lab).items()}
    while True:
        now = await asyncio.to_thread(machines, lab)
        for name, machine in now.items():
            if machine["boot_id"] != boots[name]:
                boots[name] = machine["boot_id"]
                seen.boots.append((time.monotonic() - seen.began, name))
        away = {name for name, machine in now.items() if not machine["node_ready"]}
        if not seen.away or seen.away[-1] != away:
            seen.away.append(away)
        await asyncio.sleep(_LOOK_EVERY_S)


@pytest.fixture
def larger(site: Site, tmp_path: Path) -> tuple[str, str]:
    """Options that name the stack file of the larger site, which is up."""
    pulumi = Pulumi(site.lab, tmp_path)
    options = pulumi.edited(lambda document: make_room(site.lab, document, MODEL))
    pulumi("up", "--yes", "--skip-preview", *options)
    return options


@pytest.fixture
def longhorn(site: Site, larger: tuple[str, str]) -> Iterator[EmulatedLonghorn]:
    """Beside the larger site."""
    with storing(site.lab, STORING), emulated_longhorn(site.lab) as beside:
        yield beside


def test_a_talos_version_rolls_under_load_without_a_failed_request(
    site: Site, bumped: Path, larger: tuple[str, str], longhorn: EmulatedLonghorn
) -> None:
    """Control plane first, then by name, one at a time; afterwards nothing is left to do.

    The server of the weights moves, and no replica is restarted for it. No node is drained that may have a last copy.
    """
    assert [machine["talos"] for machine in machines(site.lab).values()] == ["v1.13.9"] * len(ORDER)
    seen, load = Seen(), Load(model=MODEL, stream_tokens=STREAM_TOKENS)
    up = ("up", "--yes", "--skip-preview", "--stack", session.STACK, *larger)

    def roll() -> None:
        session.run_pulumi(site.lab, *up, project=bumped)

    asyncio.run(load.during(site, roll, _watch(site.lab, seen)))

    assert not load.failures(), (load.failures(), seen.boots, longhorn.restarted, len(load.short), len(load.streams))
    assert len(load.short) > 2 * len(ORDER)
    assert len(load.streams) > 2 * len(ORDER)
    assert [name for _, name in seen.boots] == ORDER
    assert max(map(len, seen.away)) == 1, seen.away
    assert {name: machine["talos"] for name, machine in machines(site.lab).items()} == dict.fromkeys(ORDER, VERSION)
    assert claim_name(MODEL, "longhorn") in longhorn.moved
    assert longhorn.restarted == []
    assert longhorn.cordoned == {node: [] for node in STORING}
    session.run_pulumi(site.lab, *up, "--expect-no-changes", project=bumped)
