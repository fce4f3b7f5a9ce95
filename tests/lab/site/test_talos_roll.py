"""A Talos version goes over a site that serves: node by node, and no request of a model with two replicas fails.

The site gets a machine more for everything that needs no GPU, since what runs on the only such node has nowhere to go
while that one is drained. Nothing is put back: the next `up` of the checked-in program does that, node by node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lab import deploy, session
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import Lab
from tests.lab.site.project_copies import copy_project
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = pytest.mark.row("000.11", "000.20")

MODEL = "qwen3-32b"
STREAM_TOKENS = 150
VERSION = "v1.13.7"
DRIVERS = {"production": "595.71.05", "lts": "580.173.02"}
ORDER = ["cp-1", "hgx-1", "hgx-2", "hgx-3", "hgx-4", "infra-1"]
# The rack's machine that the checked-in site does not name.
_SPARE = 5
_LOOK_EVERY_S = 0.2


@dataclass(kw_only=True)
class Seen:
    """What was seen from outside while the version went over the site."""

    streams: list[Streamed] = field(default_factory=list)
    short: list[httpx.Response | httpx.HTTPError] = field(default_factory=list)
    boots: list[tuple[float, str]] = field(default_factory=list)
    """When which node had booted again."""
    away: list[set[str]] = field(default_factory=list)
    """Nodes that were not ready, each time that this changed."""
    began: float = field(default_factory=time.monotonic)

    def failures(self) -> list[str]:
        """Every request that was not served whole, and when it began."""
        broken = [
            f"{stream.started - self.began:.1f} s: {stream.status} {stream.refusal or stream.tokens}"
            for stream in self.streams
            if not stream.complete(STREAM_TOKENS)
        ]
        for answer in self.short:
            if isinstance(answer, httpx.HTTPError):
                broken.append(f"{type(answer).__name__}: {answer}")
            elif answer.status_code != 200:
                broken.append(f"{answer.status_code} {answer.text}")
        return broken


def _with_infra(lab: Lab, site: Document) -> None:
    """A node without GPUs more, two Envoys that any node's address leads to, one model whose streams are short."""
    address = str(lab.network.node_address(_SPARE))
    site["cluster"]["machines"]["nodes"]["infra-1"] = {"role": "worker", "address": address}
    site["gateway"] |= {"replicas": 2, "external_traffic_policy": "Cluster"}
    site["models"] = {MODEL: site["models"][MODEL]}
    site["models"][MODEL]["server"]["longest_stream_s"] = 30
    for tenant in site["tenants"].values():
        tenant["models"] = [MODEL]


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


async def _ask(client: httpx.AsyncClient, seen: Seen) -> None:
    try:
        seen.short.append(await client.post("/chat/completions", json=chat(MODEL)))
    except httpx.HTTPError as error:
        seen.short.append(error)


async def _stream(client: httpx.AsyncClient, seen: Seen) -> None:
    seen.streams.append(await stream(client, chat(MODEL, tokens=STREAM_TOKENS, stream=True)))


async def _roll(site: Site, seen: Seen, *up: str, project: Path) -> None:
    # The keys are those of now: a site that was destroyed and made again has others.
    async with replace(site, front=deploy.front(site.lab)).http_async(120) as client:
        under_way: set[asyncio.Task[None]] = set()

        async def arrive() -> None:
            while True:
                for kind in (_ask, _stream):
                    task = asyncio.create_task(kind(client, seen))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    await asyncio.sleep(0.5)

        around = [asyncio.create_task(arrive()), asyncio.create_task(_watch(site.lab, seen))]
        try:
            await asyncio.to_thread(session.run_pulumi, site.lab, *up, project=project)
        finally:
            for task in around:
                task.cancel()
            await asyncio.gather(*under_way)
        for task in around:
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def larger(site: Site, tmp_path: Path) -> tuple[str, str]:
    """Options that name the stack file of the larger site, which is up."""
    pulumi = Pulumi(site.lab, tmp_path)
    options = pulumi.edited(lambda document: _with_infra(site.lab, document))
    pulumi("up", "--yes", "--skip-preview", *options)
    return options


def test_a_talos_version_rolls_under_load_without_a_failed_request(
    site: Site, bumped: Path, larger: tuple[str, str]
) -> None:
    """Control plane first, then by name, one at a time; afterwards nothing is left to do."""
    assert [machine["talos"] for machine in machines(site.lab).values()] == ["v1.13.9"] * len(ORDER)
    seen, options = Seen(), ("--stack", session.STACK, *larger)
    asyncio.run(_roll(site, seen, "up", "--yes", "--skip-preview", *options, project=bumped))

    assert not seen.failures(), (seen.failures(), seen.boots, len(seen.short), len(seen.streams))
    assert len(seen.short) > 2 * len(ORDER)
    assert len(seen.streams) > 2 * len(ORDER)
    assert [name for _, name in seen.boots] == ORDER
    assert max(map(len, seen.away)) == 1, seen.away
    assert {name: machine["talos"] for name, machine in machines(site.lab).items()} == dict.fromkeys(ORDER, VERSION)
    session.run_pulumi(site.lab, "up", "--yes", "--skip-preview", "--expect-no-changes", *options, project=bumped)
