"""Tenants with replicas of their own: what they get, and what no other does, with a gatekeeper and Envoy's filters.

The pickers' metrics are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from components.specs.access import TenantSpec
from components.specs.callers import Canary, Dedicated, FillingPool, Overflow
from components.specs.tiers import TierSpec
from floor.headers import REVISION_HEADER
from lab.paths import Lab
from tests.lab.gatekeeper_rig import MODEL, Rig, rig
from tests.lab.simulated_pickers import Filling, Pickers, running_pickers
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("001.10")

SMALL = "small"
QUEUE = 8
ROOM, FULL, AWAY = (2, 0, 0.1), (2, QUEUE, 0.1), (0, 0, 0)
OWN, LENT, CANARY = f"{MODEL}--for-acme", f"{MODEL}--for-banks", f"{MODEL}--0a1b2c3d"
POOLS: dict[str, Filling] = {MODEL: ROOM, SMALL: ROOM, OWN: ROOM, LENT: ROOM}
_BOTH: dict[str, Any] = {"models": (MODEL, SMALL), "tier": "standard", "prefix_cache": "shared"}
TENANTS = {name: TenantSpec(**_BOTH, overflow="accept") for name in ("acme", "bank", "others", "tries")}
DEDICATED = {
    "acme": Dedicated(revision=OWN, when_away="refuse"),
    "bank": Dedicated(revision=LENT, when_away="shared"),
}


@pytest.fixture(scope="module")
def pickers() -> Iterator[Pickers]:
    with running_pickers(POOLS) as server:
        yield server


@pytest.fixture(scope="module")
def shared_door(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory, pickers: Pickers) -> Iterator[Rig]:
    pool = FillingPool(metrics=f"127.0.0.1:{pickers.server_port}", queue=QUEUE, cache=0.9)
    with rig(
        module_lab_of_tools,
        tmp_path_factory.mktemp("rig"),
        TENANTS,
        {"standard": TierSpec(priority=0)},
        canary=Canary(revision=CANARY, percent=0, sticky="session", pinned={"tries": "canary"}),
        dedicated={tenant: {MODEL: own} for tenant, own in DEDICATED.items()},
        overflows={MODEL: Overflow(to=SMALL, context=1000)},
        pools=dict.fromkeys(POOLS, pool),
    ) as made:
        yield made


@pytest.fixture
def door(shared_door: Rig, pickers: Pickers) -> Rig:
    pickers.pools, pickers.answers = {**POOLS, SMALL: AWAY}, True
    eventually(lambda: got(shared_door, "others") == (MODEL, "") and got(shared_door, "bank") == (MODEL, LENT))
    pickers.pools = dict(POOLS)
    return shared_door


def got(door: Rig, tenant: str, **headers: str) -> tuple[str, str]:
    """The model and the revision that a request of a tenant goes to."""
    body = f'{{"model":"{MODEL}"}}'.encode()
    answer = door.client.post("/v1/chat/completions", content=body, headers={**door.headers(tenant), **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()["body"]["model"], answer.json()["revision"]


def test_each_tenant_has_its_own_replicas_and_no_other_has_them(door: Rig) -> None:
    assert {tenant: got(door, tenant)[1] for tenant in TENANTS} == {
        "acme": OWN,
        "bank": LENT,
        "others": "",
        "tries": CANARY,
    }
    for tenant, other in (("others", OWN), ("acme", LENT), ("acme", "")):
        assert got(door, tenant, **{REVISION_HEADER: other}) == got(door, tenant)


def test_their_picker_knows_the_tier(door: Rig) -> None:
    """Objectives are of one pool."""
    assert door.ask("acme", {"model": MODEL}).json()["tier"] == f"standard.{OWN}"


def test_while_none_is_ready_the_shared_replicas_stand_in_where_the_site_wants_it(door: Rig, pickers: Pickers) -> None:
    pickers.pools |= {OWN: AWAY, LENT: AWAY}
    eventually(lambda: got(door, "bank") == (MODEL, ""))
    assert got(door, "acme") == (MODEL, OWN)
    pickers.pools[LENT] = FULL
    eventually(lambda: got(door, "bank") == (MODEL, LENT))


def test_what_is_not_known_keeps_a_tenant_on_its_own(door: Rig, pickers: Pickers) -> None:
    pickers.pools[LENT] = AWAY
    eventually(lambda: got(door, "bank") == (MODEL, ""))
    pickers.answers = False
    eventually(lambda: got(door, "bank") == (MODEL, LENT))


def test_full_shared_replicas_send_none_of_their_requests_to_another_model(door: Rig, pickers: Pickers) -> None:
    pickers.pools[MODEL] = FULL
    eventually(lambda: {got(door, "others") for _ in range(20)} == {(SMALL, "")})
    assert (got(door, "acme"), got(door, "bank")) == ((MODEL, OWN), (MODEL, LENT))
