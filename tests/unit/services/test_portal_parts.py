"""The portal without a server: names of keys, roles, sums of a month, and a catalogue that changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.directory.orders import asked_by
from services.directory.variables import ACTOR_HEADER
from services.ledger.months import Month
from services.portal.catalogue import Catalogue, CatalogueFile
from services.portal.desk import Desk
from services.portal.failure import PortalError
from services.portal.people import Person, Role, role_in, roles
from services.portal.playground import Playground
from services.portal.usage import bars, last_months, month_of, summed
from tests.unit.services.portal_rig import CATALOGUE, CHAT, PEOPLE

OF_SITE = Catalogue.model_validate(CATALOGUE)


def person(name: str, subject: str = "") -> Person:
    claims = PEOPLE.get(name, {"groups": []})
    return Person(subject or name, str(claims.get("preferred_username", name)), frozenset(claims["groups"]))


@pytest.mark.parametrize("name", ["ann", "Ännchen Müller", "a.very.long.name@example.com", "---", "9"])
def test_a_name_of_a_key_fits_the_directory_and_names_its_owner(name: str) -> None:
    owner = person(name)
    made = owner.key_name("a" * 20)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", made)
    assert owner.owns(made)
    assert asked_by({ACTOR_HEADER: owner.actor}).actor == owner.actor


def test_no_label_makes_a_key_that_another_person_owns() -> None:
    ann, eve = person("ann"), person("ann", subject="eve")
    assert not ann.owns(eve.key_name(f"ci-{ann.mark}"))
    with pytest.raises(PortalError):
        eve.key_name("Has Space")


def test_roles_are_of_the_groups() -> None:
    held = {name: roles(person(name), OF_SITE) for name in PEOPLE}
    assert held == {
        "ann": {"search": Role.ADMIN},
        "bob": {"sales": Role.USER, "search": Role.USER},
        "eve": {"sales": Role.USER},
        "opal": {"sales": Role.OPERATOR, "search": Role.OPERATOR},
        "zoe": {},
    }


def test_a_tenant_of_others_is_answered_as_one_that_is_not_there() -> None:
    with pytest.raises(PortalError) as of_others:
        role_in("search", person("eve"), OF_SITE)
    with pytest.raises(PortalError) as not_there:
        role_in("nothing", person("eve"), OF_SITE)
    assert str(of_others.value) == str(not_there.value)
    assert of_others.value.status == 404


def test_a_month_is_summed_by_day_model_and_key() -> None:
    february = Month.named("2028-02")
    assert february
    start = int(february.start.timestamp())

    def bucket(day: int, **result: object) -> dict[str, object]:
        return {"start_time": start + (day - 1) * 86400, "results": [{"model": "chat", "api_key_id": "ci", **result}]}

    used = [
        bucket(1, input_tokens=300, input_cached_tokens=100, output_tokens=50, num_model_requests=2),
        bucket(29, input_tokens=100, output_tokens=100, num_model_requests=1, api_key_id="laptop"),
    ]
    costs = [
        bucket(1, amount={"value": 0.10000001, "exact": "0.1", "currency": "eur"}),
        bucket(2, amount={"value": "0.2", "currency": "eur"}),
    ]
    month = summed(february, used, costs, lambda key: key)
    assert (month.total.requests, month.total.input, month.total.cached_input, month.total.output) == (3, 400, 100, 150)
    assert (str(month.total.cost), month.currency) == ("0.3", "EUR")
    assert [day.tokens for day in month.days] == [350, *[0] * 27, 200]
    assert [(sums.name, sums.tokens) for sums in month.keys] == [("ci", 350), ("laptop", 200)]
    first, last = bars(month)[0], bars(month)[-1]
    assert (first.output_y, first.input_y + first.input_height) == (0, 160)
    assert last.x + 14 <= 620


def test_spend_is_of_one_currency_and_others_are_beside_it() -> None:
    """That of the newest prices, whatever order the days come in."""
    month = Month.named("2028-02")
    assert month
    start = int(month.start.timestamp())

    def bucket(day: int, currency: str, exact: str) -> dict[str, object]:
        amount = {"value": exact, "exact": exact, "currency": currency}
        return {"start_time": start + day * 86400, "results": [{"model": "chat", "amount": amount}]}

    use = summed(month, [], [bucket(5, "eur", "50.00"), bucket(3, "chf", "90.5"), bucket(4, "chf", "9.5")], str)
    assert (str(use.total.cost), use.currency) == ("50.00", "EUR")
    assert use.others == {"CHF": 100}


def test_months_go_back_over_a_year() -> None:
    january = Month.of(datetime(2027, 1, 5, tzinfo=UTC).timestamp())
    assert last_months(january)[:2] == ["2027-01", "2026-12"]
    assert month_of("", january) == january
    with pytest.raises(PortalError):
        month_of("2027-13", january)


def test_a_playground_key_that_was_revoked_is_replaced(tmp_path: Path) -> None:
    class Parts:
        """A gateway that does not know the first key, beside a directory that makes them."""

        made = 0

        async def create(self, *_: object, **__: object) -> dict[str, str]:
            self.made += 1
            return {"id": str(self.made), "key": f"key-{self.made}"}

        async def stream(self, key: str, *_: object) -> AsyncIterator[str]:
            if key == "key-1":
                raise PortalError(502, "key_not_known", "", "")
            yield key

    (tmp_path / "catalogue.json").write_text(json.dumps(CATALOGUE))
    parts: Any = Parts()
    asked = Playground(Desk(CatalogueFile(tmp_path / "catalogue.json"), parts, None, parts), heard_of_s=-1)

    async def answer() -> list[str]:
        return [piece async for piece in asked.answer(person("ann"), "session", "search", CHAT, "hello")]

    assert asyncio.run(answer()) == ["key-2"]


def test_a_catalogue_is_read_again_and_one_that_is_damaged_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.json"
    catalogue = CatalogueFile(path)
    with pytest.raises(PortalError, match="No such file"):
        catalogue.read()

    def written(content: str) -> None:
        # As a ConfigMap changes: another file at its place.
        (tmp_path / "new").write_text(content)
        (tmp_path / "new").replace(path)

    written('{"models": []}')
    for _ in range(2):
        with pytest.raises(PortalError, match="wrong at site, models"):
            catalogue.read()
    written(json.dumps(CATALOGUE))
    assert catalogue.read().site == "berlin"
    written('{"site": 3')
    assert catalogue.read().site == "berlin"
    written(json.dumps(CATALOGUE | {"site": "paris", "later": True}))
    assert catalogue.read().site == "paris"
