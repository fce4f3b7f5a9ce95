"""Which sessions a canary gets, and that they stay, with the gatekeeper and Envoy's filters as a site has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from components.specs.access import TenantSpec
from components.specs.callers import Canary
from components.specs.tiers import TierSpec
from floor.headers import REVISION_HEADER
from lab.paths import Lab
from tests.lab.gatekeeper_rig import MODEL, Rig, rig
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("001.06", "001.32", "002.13", "004.02", "opening 20")

REVISION = f"{MODEL}--0a1b2c3d"
CANARY = Canary(revision=REVISION, percent=25, sticky="session", pinned={"early": "canary", "late": "stable"})
TENANTS = {
    name: TenantSpec(models=(MODEL,), tier="standard", prefix_cache="shared") for name in ("acme", "early", "late")
}
TIERS = {"standard": TierSpec(priority=0)}
CHAT, MESSAGES = "/v1/chat/completions", "/anthropic/v1/messages"
# Each so many that a share is that near to what was declared: 2.3 standard deviations of a quarter of them.
NEAR = {2_000: 0.0223, 10_000: 0.01}


@pytest.fixture(scope="module")
def door(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(module_lab_of_tools, tmp_path_factory.mktemp("rig"), TENANTS, TIERS, canary=CANARY) as made:
        yield made


def revision(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["revision"])


def asked(door: Rig, tenant: str = "acme", path: str = CHAT, **fields: Any) -> str:
    return revision(door.ask(tenant, {"model": MODEL, **fields}, path))


async def of_sessions(door: Rig, names: list[str]) -> dict[str, str]:
    """Session -> its revision."""
    served_by = {}
    async with httpx.AsyncClient(base_url=door.client.base_url, headers=door.headers("acme"), timeout=60) as client:
        room = asyncio.Semaphore(8)

        async def ask(name: str) -> None:
            async with room:
                body = json.dumps({"model": MODEL, "prompt_cache_key": name})
                served_by[name] = revision(await client.post(CHAT, content=body))

        await asyncio.gather(*(ask(name) for name in names))
    return served_by


def test_a_pinned_tenant_has_one_revision_whatever_its_session(door: Rig) -> None:
    for tenant, expected in (("early", REVISION), ("late", "")):
        assert {asked(door, tenant, prompt_cache_key=str(number)) for number in range(20)} == {expected}


def test_a_session_is_what_a_client_names_and_else_its_key(door: Rig) -> None:
    assert len({asked(door) for _ in range(20)}) == 1
    for path, fields in (
        (CHAT, lambda name: {"user": name}),
        (CHAT, lambda name: {"safety_identifier": name}),
        ("/v1/responses", lambda name: {"prompt_cache_key": name}),
        (MESSAGES, lambda name: {"metadata": {"user_id": name}}),
    ):
        served_by = {name: asked(door, path=path, **fields(name)) for name in map(str, range(40))}
        assert set(served_by.values()) == {"", REVISION}
        # The same name is the same session on every path.
        assert served_by == {name: asked(door, prompt_cache_key=name) for name in served_by}


def test_no_client_chooses_its_revision_by_a_header(door: Rig) -> None:
    headers = {**door.headers("late"), REVISION_HEADER: REVISION}
    assert revision(door.client.post(CHAT, content=json.dumps({"model": MODEL}), headers=headers)) == ""


def test_the_picker_of_each_revision_knows_the_tier(door: Rig) -> None:
    """Objectives are of one pool."""
    tiers = {tenant: door.ask(tenant, {"model": MODEL}).json()["tier"] for tenant in ("early", "late")}
    assert tiers == {"early": f"standard.{REVISION}", "late": f"standard.{MODEL}"}


@pytest.mark.parametrize("sessions", [2_000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_it_gets_its_share_of_sessions_and_keeps_them_as_it_grows(door: Rig, sessions: int) -> None:
    door.canary = CANARY
    door.write_files()
    names = [f"session-{number}" for number in range(sessions)]
    eventually(lambda: _share(door, names[:200]) < 0.4)
    first = asyncio.run(of_sessions(door, names))
    assert set(first.values()) == {"", REVISION}
    served = {name for name, served_by in first.items() if served_by}
    assert abs(len(served) / sessions - 0.25) <= NEAR[sessions]
    assert asyncio.run(of_sessions(door, names[:100])) == {name: first[name] for name in names[:100]}

    door.canary = replace(CANARY, percent=60)
    door.write_files()
    # The gatekeeper reads its file again within seconds.
    eventually(lambda: _share(door, names[:200]) > 0.4)
    second = asyncio.run(of_sessions(door, names[:2000]))
    assert served & second.keys() <= {name for name, served_by in second.items() if served_by}
    assert len(served) / sessions < _share(door, names[:2000])


def _share(door: Rig, names: list[str]) -> float:
    return sum(bool(served_by) for served_by in asyncio.run(of_sessions(door, names)).values()) / len(names)
