"""Verdicts on models whose number of replicas follows the load: what runs is a range, and no input holds the number."""

from __future__ import annotations

from typing import Any

import pytest

from components.models.scaling import scaled_object
from components.specs.model_server import SCALED, ScalingPlan
from policy.model import Resource
from sitectl.change.changes import Change, between
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity, Verdict

pytestmark = pytest.mark.row("001.24", "opening 3")

NAME = "chat"


def deployment(replicas: int, most: int | None = None, image: str = "engine:1") -> dict[str, Any]:
    """Of a fixed number, or between two."""
    mark = {} if most is None else {"annotations": {SCALED: f"{replicas} to {most} replicas"}}
    container = {"name": "engine", "image": image, "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    return {
        "kind": "Deployment",
        "metadata": {"name": NAME, **mark},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }


def scaled(least: int, most: int, requests: int = 31) -> dict[str, Any]:
    plan = ScalingPlan(least=least, most=most, peaks=(), requests=requests, kv_share=0.85, window_s=300)
    return scaled_object(NAME, "models", {}, plan, "http://prometheus")


def verdicts(before: dict[str, Any], after: dict[str, Any]) -> list[Verdict]:
    kind = (after or before)["kind"]
    type_ = "kubernetes:apps/v1:Deployment" if kind == "Deployment" else "kubernetes:keda.sh/v1alpha1:ScaledObject"
    return classify(Change(op="update" if after else "delete", type=type_, name=NAME, before=before, after=after))


def test_a_number_that_becomes_a_range_stops_no_replica() -> None:
    """A preview has the number of before in both inputs; a comparison of two renders has the least after it."""
    for after in (deployment(2, 4), deployment(2, 4) | {"spec": deployment(4)["spec"]}):
        (only,) = verdicts(deployment(4), after)
        assert (only.severity, only.restarts, only.gpus) == (Severity.LIVE, 0, 0)
        assert only.what == "4 replicas -> 2 to 4 replicas by the load"


def test_a_comparison_of_two_renders_shows_no_number_that_nothing_sets() -> None:
    type_ = "kubernetes:apps/v1:Deployment"
    before, after = (Resource(type=type_, name=NAME, body=body) for body in (deployment(4), deployment(2, 4)))
    (change,) = between([before], [after])
    assert change.touched == ("metadata.annotations",)


def test_a_range_that_becomes_a_number_stops_what_may_be_above_it() -> None:
    (less,) = verdicts(deployment(2, 5), deployment(3))
    assert (less.severity, less.restarts, less.gpus) == (Severity.RESTARTS, 2, 0)
    (most,) = verdicts(deployment(2, 5), deployment(5))
    assert (most.severity, most.restarts) == (Severity.LIVE, 0)
    # KEDA sets numbers until its order goes, after the Deployment got the site's.
    assert all("run `up --refresh` after it" in row.reason for row in (less, most))
    (order,) = verdicts(scaled(2, 5), {})
    assert "`up --refresh` then sets that of the site's file" in order.reason


def test_a_pod_that_changes_restarts_as_many_as_there_may_be() -> None:
    (only,) = verdicts(deployment(2, 4), deployment(2, 4, image="engine:2"))
    assert (only.what, only.restarts) == ("restarts 2 to 4 replicas, one after the other", 4)
    (gone,) = verdicts(deployment(2, 4), {})
    assert (gone.what, gone.restarts) == ("stops all 2 to 4 replicas for good", 4)


def test_another_range_says_how_many_start_or_end() -> None:
    (wider,) = verdicts(scaled(2, 4), scaled(3, 6))
    assert (wider.severity, wider.restarts) == (Severity.LIVE, 0)
    assert (wider.what, wider.reason) == ("2 to 4 -> 3 to 6 replicas by the load", "up to 1 replica more at once")
    (smaller,) = verdicts(scaled(2, 6), scaled(2, 4))
    assert (smaller.severity, smaller.restarts) == (Severity.RESTARTS, 2)


def test_a_range_down_to_none_says_that_requests_are_refused() -> None:
    (down,) = verdicts(scaled(2, 4), scaled(0, 4))
    assert "its requests are refused until one has started" in down.reason
    (wider,) = verdicts(scaled(0, 4), scaled(0, 6))
    assert "refused" not in wider.reason
    type_ = "kubernetes:apps/v1:Deployment"
    (new,) = classify(Change(op="create", type=type_, name=NAME, before={}, after=deployment(0, 4)))
    assert (new.what, new.gpus) == ("starts no replica until it is asked", 0)
    (fixed,) = verdicts(deployment(0, 4), deployment(4))
    assert (fixed.severity, fixed.restarts) == (Severity.RESTARTS, 4)
    assert "run `up --refresh` after it" in fixed.reason


def test_another_threshold_restarts_nothing() -> None:
    (only,) = verdicts(scaled(2, 4), scaled(2, 4, requests=20))
    assert (only.severity, only.what) == (Severity.LIVE, "replicas start at other loads or times")
