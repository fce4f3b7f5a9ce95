"""What a day leaves for jobs beside the declared load, and whether the plans of those who send them fit into it."""

from __future__ import annotations

from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.batch_window import BatchWindow, describe_windows, windows
from stacks.plan.site_plan import SitePlan, plan_values
from tests.documented import ROOT
from tests.unit.stacks.site_examples import prod, reference
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 28")

MODEL = "qwen3-32b"
PAGE = ROOT / "docs" / "how-to" / "limit-tenants.md"
QUIET = f"models.{MODEL}.load.quiet_hours"
JOBS = "tenants.archive.limits"


def planned(hours: dict[str, float], **changes: Any) -> SitePlan:
    return plan_values(changed(prod(), {QUIET: hours, **changes}), "site.yaml")


def window_of(plan: SitePlan) -> BatchWindow:
    (window,) = windows(plan.models)
    assert window.revision.model == MODEL
    return window


def test_a_day_is_its_hours_each_with_what_its_share_of_the_load_leaves() -> None:
    plan = planned({"22-06": 0.1, "18-22": 0.5})
    window, proof = window_of(plan), plan.models[MODEL].stable.proof
    load = proof.order.load
    assert load is not None
    assert [(hours.text, hours.count) for hours in window.hours] == [("18-22", 4), ("22-06", 8), ("other hours", 12)]
    for hours, share in zip(window.hours, (0.5, 0.1, 1.0), strict=True):
        used = share * load.requests_per_s
        assert hours.left_nominal == pytest.approx(proof.capacity_requests_per_s - used)
        assert hours.left.slow == pytest.approx(proof.ends.slow.capacity_requests_per_s - used)
    left = 24 * proof.capacity_requests_per_s - (8 * 0.1 + 4 * 0.5 + 12) * load.requests_per_s
    assert window.tokens == pytest.approx(3600 * left * load.request_tokens)
    whole = window_of(planned({"0-24": 0.0}))
    assert [hours.text for hours in whole.hours] == ["0-24"]
    assert whole.tokens > window.tokens


def test_what_is_too_slow_for_its_load_leaves_nothing() -> None:
    """And no less than nothing, which would be taken off other hours."""
    window = window_of(planned({"22-06": 0.1}, **{f"models.{MODEL}.load.requests_per_s": 7.0}))
    assert [hours.left.slow for hours in window.hours][1] == 0
    assert (window.tokens_span.slow or 0) > 0


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "FIT"), (1.1, "MAY NOT FIT"), (9.0, "DO NOT FIT")])
def test_the_plans_of_those_who_send_jobs_are_held_against_it(share: float, verdict: str) -> None:
    """By the slow end of the band they fit, and beyond the fast end they do not."""
    slow = window_of(planned({"22-06": 0.1})).tokens_span.slow
    assert slow is not None
    plan = planned({"22-06": 0.1}, **{JOBS: {"tokens_per_day": int(share * slow)}})
    text = describe_windows(plan.site, plan.models)
    assert f" of jobs {verdict}, by the plans of archive  [estimated]" in text
    assert text in plan.limits_text


def test_the_most_of_one_model_counts_and_jobs_without_a_limit_are_not_known() -> None:
    most = {"tenants.archive.model_limits": {MODEL: {"tokens_per_day": 50_000_000}}}
    plan = planned({"22-06": 0.1}, **{JOBS: {"tokens_per_day": 3_000_000_000}}, **most)
    assert "; the 50 M of jobs FIT, by the plans of archive" in describe_windows(plan.site, plan.models)
    plan = planned({"22-06": 0.1})
    text = describe_windows(plan.site, plan.models)
    assert "; whether jobs FIT is not known: archive may use any tokens_per_day" in text


def test_dedicated_replicas_have_a_window_of_their_own() -> None:
    group = {"own": {"tenants": ["search"], "server": {"replicas": 1}, "load": {"requests_per_s": 0.5}}}
    plan = planned({"22-06": 0.1}, **{f"models.{MODEL}.dedicated": group, "callers": {"decided_by": "gatekeeper"}})
    assert [window.revision.name for window in windows(plan.models)] == [MODEL, f"{MODEL}--for-own"]


def test_the_page_shows_what_preview_prints() -> None:
    plan = plan_values(changed(reference(), {QUIET: {"22-06": 0.1, "18-22": 0.5}}), "site.yaml")
    assert f"```text\n{describe_windows(plan.site, plan.models)}\n```" in PAGE.read_text()


@pytest.mark.parametrize(
    ("hours", "wrong"),
    [
        ({"22-06": 0.1, "5-8": 0.5}, "the hour from 05:00 is in two ranges"),
        ({"22:00": 0.1}, "22:00"),
        ({"1-2": 1}, "1"),
    ],
)
def test_wrong_hours_are_refused(hours: dict[str, float], wrong: str) -> None:
    with pytest.raises(SiteError) as caught:
        planned(hours)
    assert wrong in str(caught.value)


def test_a_site_without_quiet_hours_is_shown_no_window() -> None:
    plan = planned({})
    assert describe_windows(plan.site, plan.models) == ""
