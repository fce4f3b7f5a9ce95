"""A waiver lets one resource break one rule, with a reason and until a day."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from floor.problems import SiteError
from policy import rules_file
from policy.model import HIDDEN
from policy.waivers import RulesSpec, Waiver, judge
from tests.unit.rules.broken_sites import BROKEN, FACTS, bodies, resources

pytestmark = pytest.mark.row("opening 15")

TODAY = datetime.date(2026, 6, 15)
RESOURCE = "Deployment models/chat"


def waiver(**changes: Any) -> Waiver:
    said = {"rule": "spread", "resource": RESOURCE, "reason": "one node until the rack grows", "expires": TODAY}
    return Waiver.model_validate(said | changes)


def broken() -> Any:
    found = bodies()
    BROKEN["spread", ""].change(found)
    return resources(found)


def test_without_a_waiver_it_is_an_error() -> None:
    found = judge(broken(), FACTS, [], TODAY)
    assert [one.rule for one in found.errors] == ["spread"]


def test_a_waiver_holds_on_its_last_day() -> None:
    found = judge(broken(), FACTS, [waiver()], TODAY)
    assert (found.errors, found.advice) == ([], [])
    assert [(one.rule, held.reason) for one, held in found.waived] == [("spread", "one node until the rack grows")]


def test_an_expired_waiver_is_an_error_beside_what_it_waived() -> None:
    found = judge(broken(), FACTS, [waiver()], TODAY + datetime.timedelta(days=1))
    assert [one.problem.partition(" (")[0] for one in found.errors] == [
        "its replicas may share one node, whose failure takes all of them",
        "its waiver expired on 2026-06-15",
    ]


@pytest.mark.parametrize("other", [{"resource": "Deployment models/other"}, {"rule": "image-pinned"}])
def test_a_waiver_covers_nothing_else(other: dict[str, str]) -> None:
    found = judge(broken(), FACTS, [waiver(**other)], TODAY)
    assert [one.rule for one in found.errors] == ["spread"]
    assert "waives nothing" in found.advice[0].problem


def test_an_unprotected_volume_is_an_error_and_can_be_waived() -> None:
    open_ = resources(bodies(), protected=False)
    assert [one.rule for one in judge(open_, FACTS, [], TODAY).errors] == ["protect-stateful"]
    held = waiver(rule="protect-stateful", resource="PersistentVolumeClaim models/chat-weights")
    found = judge(open_, FACTS, [held], TODAY)
    assert (found.errors, found.advice) == ([], [])


def test_advice_stays_advice_and_can_be_waived() -> None:
    opaque = bodies()
    opaque["deployment"]["spec"] = HIDDEN
    found = judge(resources(opaque), FACTS, [], TODAY)
    assert found.errors == []
    assert {(one.resource, one.level) for one in found.advice} == {(RESOURCE, "advice")}
    held = [waiver(rule=one.rule) for one in found.advice]
    assert judge(resources(opaque), FACTS, held, TODAY).advice == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rule": "spreads"}, "did you mean 'spread'?"),
        ({"reason": "because"}, "at least 10 characters"),
        ({"expires": "never"}, "valid date"),
        ({"until": "2027-01-01"}, "Extra inputs"),
    ],
)
def test_a_waiver_that_says_too_little_is_refused(change: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says.replace("?", r"\?")):
        waiver(**change)


def test_a_sites_own_words_become_facts() -> None:
    said = RulesSpec(sovereign=True, registries=("r",), privileged_namespaces=("storage",))
    facts = said.facts("berlin", {"chat": 1.0})
    assert (facts.sovereign, facts.registries, facts.load_s) == (True, ("r",), {"chat": 1.0})
    assert {"storage", "envoy-gateway-system"} <= set(facts.privileged_namespaces)


def test_a_link_that_leads_nowhere_is_no_missing_file(tmp_path: Path) -> None:
    """It would be read as a site that waives nothing."""
    (tmp_path / "rules.berlin.yaml").symlink_to("/nonexistent")
    with pytest.raises(SiteError, match="is a link to /nonexistent, which is not there"):
        rules_file.read(tmp_path, "berlin")
