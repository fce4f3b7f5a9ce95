"""Requests of a full model, or one that is away, go to another: whose, which, and until when.

With the gatekeeper and Envoy's filters as a site has them; the pickers' metrics are simulated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from components.specs.access import TenantSpec
from components.specs.callers import Canary, Dedicated, FillingPool, Overflow
from components.specs.tiers import TierSpec
from floor.headers import SERVED_HEADER
from lab.paths import Lab
from tests.lab.gatekeeper_rig import MODEL, Rig, rig
from tests.lab.simulated_pickers import Pickers, running_pickers
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("004.14")

SMALL, CONTEXT = "small", 1000
QUEUE, CACHE = 8, 0.9
FULL, BUSY, ROOM, AWAY = (2, QUEUE, 0.1), (2, QUEUE - 1, 0.1), (2, 1, 0.1), (0, QUEUE, 0.1)
"""Ready replicas, requests that wait and the share of the cache in use, on average."""
CHAT, MESSAGES = "/v1/chat/completions", "/anthropic/v1/messages"
_BOTH: dict[str, Any] = {"models": (MODEL, SMALL), "tier": "standard", "prefix_cache": "shared"}
TENANTS = {
    "acme": TenantSpec(**_BOTH, overflow="accept"),
    "pinned": TenantSpec(**_BOTH, overflow="accept"),
    "tries": TenantSpec(**_BOTH, overflow="accept"),
    "refuses": TenantSpec(**_BOTH),
    "narrow": TenantSpec(**{**_BOTH, "models": (MODEL,)}, overflow="accept"),
    "own": TenantSpec(**_BOTH, overflow="accept"),
}
PINNED = {"pinned": "stable", "tries": "canary"}


@pytest.fixture(scope="module")
def pickers() -> Iterator[Pickers]:
    with running_pickers({MODEL: ROOM, SMALL: ROOM}) as server:
        yield server


@pytest.fixture(scope="module")
def shared_door(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory, pickers: Pickers) -> Iterator[Rig]:
    pool = FillingPool(metrics=f"127.0.0.1:{pickers.server_port}", queue=QUEUE, cache=CACHE)
    canary = Canary(revision=f"{MODEL}--0a1b2c3d", percent=0, sticky="session", pinned=PINNED)
    with rig(
        module_lab_of_tools,
        tmp_path_factory.mktemp("rig"),
        TENANTS,
        {"standard": TierSpec(priority=0)},
        canary=canary,
        dedicated={"own": {SMALL: Dedicated(revision=f"{SMALL}--own", when_away="refuse")}},
        overflows={MODEL: Overflow(to=SMALL, context=CONTEXT)},
        pools={MODEL: pool, SMALL: pool},
    ) as made:
        yield made


@pytest.fixture
def door(shared_door: Rig, pickers: Pickers) -> Rig:
    # A target that is away ends it at once.
    pickers.pools, pickers.answers = {MODEL: ROOM, SMALL: AWAY}, True
    eventually(lambda: share(shared_door) == 0)
    pickers.pools[SMALL] = ROOM
    return shared_door


def figure(door: Rig, name: str) -> float:
    """A figure of the one model of the gatekeeper's metrics."""
    counted = re.search(
        rf'^gatekeeper_overflow_{name}{{model="{MODEL}".*}} (\S+)$', door.state_of("/metrics").text, re.MULTILINE
    )
    return float(counted[1]) if counted else 0.0


def share(door: Rig) -> float:
    return figure(door, "share")


def filled(door: Rig, pickers: Pickers, of: tuple[float, float, float] = FULL) -> None:
    pickers.pools[MODEL] = of
    eventually(lambda: share(door) == 1)


def served(door: Rig, tenant: str = "acme", path: str = CHAT, **fields: Any) -> str:
    """The model that an engine gets a request for."""
    answer = door.ask(tenant, {"model": MODEL, **fields}, path)
    assert answer.status_code == 200, answer.text
    to = str(answer.json()["body"]["model"])
    # Whoever gets another model is told so.
    assert answer.headers.get(SERVED_HEADER) == (to if to != MODEL else None)
    return to


@pytest.mark.parametrize("of", [FULL, (2, 0, CACHE), AWAY], ids=["queue", "cache", "away"])
def test_a_request_that_has_no_room_is_one_for_the_other_model(
    door: Rig, pickers: Pickers, of: tuple[float, float, float]
) -> None:
    """In the body and everywhere behind: who is not asked here sees the model that answers."""
    assert served(door) == MODEL
    filled(door, pickers, of)
    before = figure(door, "requests_total")
    answer = door.ask("acme", {"user": "u", "model": MODEL, "messages": [], "max_tokens": 5})
    assert answer.headers[SERVED_HEADER] == SMALL
    got = answer.json()
    assert got["body"] == {"user": "u", "model": SMALL, "messages": [], "max_tokens": 5}
    assert (got["tier"], got["asked"], got["revision"]) == (f"standard.{SMALL}", MODEL, "")
    assert figure(door, "requests_total") == before + 1


def test_it_goes_on_every_api_that_writes_text(door: Rig, pickers: Pickers) -> None:
    filled(door, pickers)
    for path in (CHAT, "/v1/completions", "/v1/responses", MESSAGES):
        assert served(door, path=path) == SMALL


def test_what_only_its_own_model_may_answer_stays(door: Rig, pickers: Pickers) -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("refuses", CHAT, {}),
        ("narrow", CHAT, {}),
        ("own", CHAT, {}),
        *((tenant, CHAT, {}) for tenant in PINNED),
        ("acme", CHAT, {"messages": [{"role": "user", "content": "x" * 4 * CONTEXT}]}),
        ("acme", CHAT, {"max_tokens": CONTEXT}),
        ("acme", CHAT, {"logit_bias": {"5": 1}}),
        ("acme", "/v1/completions", {"prompt": [1, 2]}),
        ("acme", "/v1/completions", {"prompt": [[1, 2]]}),
        ("acme", "/v1/responses", {"previous_response_id": "r"}),
        ("acme", "/v1/embeddings", {}),
    ]
    filled(door, pickers)
    for tenant, path, fields in cases:
        assert served(door, tenant, path, **fields) == MODEL, (tenant, path, [*fields])
    assert served(door) == SMALL


def test_a_share_overflows_and_a_session_stays_where_it_is(door: Rig, pickers: Pickers) -> None:
    """It grows while the model is full, holds until there is room again, and does not end at once."""
    pickers.pools[MODEL] = FULL
    eventually(lambda: 0 < share(door) < 1)
    filled(door, pickers)
    # It falls far slower than it grows, so that a busy machine is in time to hold it.
    pickers.pools[MODEL] = ROOM
    eventually(lambda: share(door) <= 0.8)
    pickers.pools[MODEL] = BUSY
    # Two readings: that the share holds shows in no other way.
    time.sleep(2.5)
    held = share(door)
    assert 0.5 <= held < 1
    names = [str(number) for number in range(60)]
    first = [served(door, user=name) for name in names]
    assert {*first} == {MODEL, SMALL}
    assert first == [served(door, user=name) for name in names]
    # Without a session each request draws.
    assert {served(door) for _ in range(60)} == {MODEL, SMALL}
    assert share(door) == held
    pickers.pools[MODEL] = ROOM
    eventually(lambda: 0 < share(door) < held)
    eventually(lambda: share(door) == 0)
    assert {served(door, user=name) for name in names} == {MODEL}


@pytest.mark.parametrize("of", [FULL, AWAY], ids=["full", "away"])
def test_a_target_without_room_takes_none(door: Rig, pickers: Pickers, of: tuple[float, float, float]) -> None:
    """Its own requests come first, even where the model that is asked for cannot answer."""
    filled(door, pickers, AWAY)
    pickers.pools[SMALL] = of
    eventually(lambda: share(door) == 0)
    # Two more readings: that none comes back shows in no other way.
    time.sleep(2.5)
    assert share(door) == 0
    assert served(door) == MODEL


def test_what_is_not_known_is_no_reason_to_overflow(door: Rig, pickers: Pickers) -> None:
    filled(door, pickers)
    before = figure(door, "unread_total")
    pickers.answers = False
    eventually(lambda: share(door) == 0)
    assert figure(door, "unread_total") > before
    assert served(door) == MODEL
