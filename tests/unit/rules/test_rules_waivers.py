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
    values = {"rule": "spread", "resource": RESOURCE, "reason": "one node until the rack grows", "expires": TODAY}
    return Waiver.model_validate(values | changes)


def broken() -> Any:
    objects = bodies()
    BROKEN["spread", ""].change(objects)
    return resources(objects)


def test_without_a_waiver_it_is_an_error() -> None:
    verdict = judge(broken(), FACTS, [], TODAY)
    assert [violation.rule for violation in verdict.errors] == ["spread"]


def test_a_waiver_holds_on_its_last_day() -> None:
    verdict = judge(broken(), FACTS, [waiver()], TODAY)
    assert (verdict.errors, verdict.advice) == ([], [])
    assert [(violation.rule, held.reason) for violation, held in verdict.waived] == [
        ("spread", "one node until the rack grows")
    ]


def test_an_expired_waiver_is_an_error_beside_what_it_waived() -> None:
    verdict = judge(broken(), FACTS, [waiver()], TODAY + datetime.timedelta(days=1))
    assert [violation.problem.partition(" (")[0] for violation in verdict.errors] == [
        "its replicas may share one node, whose failure takes all of them",
        "its waiver expired on 2026-06-15",
    ]


@pytest.mark.parametrize("other", [{"resource": "Deployment models/other"}, {"rule": "image-pinned"}])
def test_a_waiver_covers_nothing_else(other: dict[str, str]) -> None:
    verdict = judge(broken(), FACTS, [waiver(**other)], TODAY)
    assert [violation.rule for violation in verdict.errors] == ["spread"]
    assert "waives nothing" in verdict.advice[0].problem


def test_an_unprotected_volume_is_an_error_and_can_be_waived() -> None:
    open_ = resources(bodies(), protected=False)
    assert [violation.rule for violation in judge(open_, FACTS, [], TODAY).errors] == ["protect-stateful"]
    held = waiver(rule="protect-stateful", resource="PersistentVolumeClaim models/chat-weights")
    verdict = judge(open_, FACTS, [held], TODAY)
    assert (verdict.errors, verdict.advice) == ([], [])


def test_advice_stays_advice_and_can_be_waived() -> None:
    opaque = bodies()
    opaque["deployment"]["spec"] = HIDDEN
    verdict = judge(resources(opaque), FACTS, [], TODAY)
    assert verdict.errors == []
    assert {(violation.resource, violation.level) for violation in verdict.advice} == {(RESOURCE, "advice")}
    held = [waiver(rule=violation.rule) for violation in verdict.advice]
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
    spec = RulesSpec(sovereign=True, registries=("r",), privileged_namespaces=("storage",))
    facts = spec.facts("berlin", {"chat": 1.0})
    assert (facts.sovereign, facts.registries, facts.load_s) == (True, ("r",), {"chat": 1.0})
    assert {"storage", "envoy-gateway-system"} <= set(facts.privileged_namespaces)


def test_a_link_that_leads_nowhere_is_no_missing_file(tmp_path: Path) -> None:
    """It would be read as a site that waives nothing."""
    (tmp_path / "rules.berlin.yaml").symlink_to("/nonexistent")
    with pytest.raises(SiteError, match="is a link to /nonexistent, which is not there"):
        rules_file.read(tmp_path, "berlin")
