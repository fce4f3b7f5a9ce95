"""What a changed tier means, per tenant: from the site's settings to verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from components.gateway.traffic_policies import target_gateway
from components.specs.access import TenantSpec
from components.specs.tiers import TierSpec
from components.tenants.callers import mounted, tenants_file
from components.tenants.limit_scripts import limits_script
from components.tenants.tiers import caller_policy, inference_objective, tiers_script
from sitectl.change.changes import Change, Op
from sitectl.change.report import report
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity, Verdict

pytestmark = pytest.mark.row("opening 3", "002.15")

AGAIN, LIVE = Severity.RESTARTS, Severity.LIVE
CALLERS = {"acme": {"qwen"}, "globex": {"qwen", "glm"}, "initech": {"glm"}}


def of_policy(op: Op, before: Mapping[str, str] | None, after: Mapping[str, str] | None) -> Change:
    def body(tier_of: Mapping[str, str] | None) -> dict[str, Any]:
        return {} if tier_of is None else caller_policy("g", target_gateway(), [tiers_script(tier_of)])

    kind = "kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyExtensionPolicy"
    return Change(op=op, type=kind, name="tiers-policy", before=body(before), after=body(after))


def of_objective(op: Op, before: int | None, after: int | None) -> Change:
    def body(priority: int | None) -> dict[str, Any]:
        return {} if priority is None else inference_objective("batch", TierSpec(priority=priority), "glm", "m")

    kind = "kubernetes:inference.networking.x-k8s.io/v1alpha2:InferenceObjective"
    return Change(op=op, type=kind, name="tiers-batch.glm", before=body(before), after=body(after))


def rows(change: Change) -> list[tuple[Severity, str, tuple[str, ...]]]:
    return [(verdict.severity, verdict.what, verdict.tenants) for verdict in classify(change)]


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ({"acme": "interactive"}, {"acme": "batch"}, "tenant acme: tier interactive -> tier batch"),
        ({"globex": "batch"}, {"globex": "batch", "acme": "batch"}, "tenant acme: no tier -> tier batch"),
        ({"acme": "batch", "globex": "batch"}, {"globex": "batch"}, "tenant acme: tier batch -> no tier"),
    ],
)
def test_another_tier_is_live_and_names_the_tenant(before: dict[str, str], after: dict[str, str], what: str) -> None:
    assert rows(of_policy("update", before, after)) == [(LIVE, what, ("acme",))]
    reported = report("a", [of_policy("update", before, after)], CALLERS)
    assert [row.tenants for row in reported.rows] == [("acme",)]
    assert reported.tenants == [], "no requests break off"


@pytest.mark.row("004.03")
def test_another_limit_is_live_and_names_the_tenant() -> None:
    """Who is cut, from what to what."""

    def body(limits: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
        return caller_policy("g", target_gateway(), [tiers_script({"acme": "batch"}), limits_script(limits)])

    before = {"acme": {"tokens_per_day": 500}, "globex": {"tokens_per_day": 500, "requests_per_minute": 9}}
    after = {"acme": {"tokens_per_day": 500}, "globex": {"tokens_per_day": 100}}
    change = Change(
        op="update",
        type="kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyExtensionPolicy",
        name="tiers-policy",
        before=body(before),
        after=body(after),
    )
    what = "tenant globex: requests_per_minute 9 -> unlimited, tokens_per_day 500 -> 100"
    assert rows(change) == [(LIVE, what, ("globex",))]


def test_a_gatekeepers_tenants_are_named_by_what_changes() -> None:
    """Models, tier, limits and cache, out of the ConfigMap that has them all."""

    def body(parallel: int, **given: TenantSpec) -> dict[str, Any]:
        limits = {name: {"tokens_per_day": 5} for name in given}
        bounds = {name: {"parallel_requests": parallel} for name in given}
        budgets = {name: {"spend_per_month": parallel + 0.5, "tokens_per_month": 10**10} for name in given}
        content = tenants_file(given, limits=limits, bounds=bounds, budgets=budgets)
        return mounted("g", "tenants", {"tenants.json": content})

    acme = TenantSpec(models=("qwen", "glm"), tier="batch")
    other = acme.model_copy(update={"models": ("qwen",), "tier": None, "prefix_cache": "shared"})
    before, after = body(4, acme=acme), body(2, acme=other)
    kind = "kubernetes:core/v1:ConfigMap"
    change = Change(op="update", type=kind, name="callers-tenants", before=before, after=after)
    assert rows(change) == [
        (Severity.REPLACED, "tenant acme loses glm", ("acme",)),
        (LIVE, "tenant acme: tier batch -> no tier", ("acme",)),
        (LIVE, "tenant acme: parallel_requests 4 -> 2, spend_per_month 4.5 -> 2.5", ("acme",)),
        (LIVE, "tenant acme: prefix cache own -> shared", ("acme",)),
    ]
    same = Change(op="update", type=kind, name="callers-tenants", before=before, after=before)
    assert [row[:2] for row in rows(same)] == [(LIVE, "tenants stay as they are")]


def test_the_first_tier_and_the_last_replace_the_listener() -> None:
    first = rows(of_policy("create", None, {"acme": "batch"}))
    assert first == [
        (AGAIN, "Envoy replaces its listener", ()),
        (LIVE, "tenant acme: no tier -> tier batch", ("acme",)),
    ]
    assert rows(of_policy("delete", {"acme": "batch"}, None))[0][:2] == (AGAIN, "Envoy replaces its listener")


def test_another_script_replaces_the_listener() -> None:
    change = of_policy("update", {"acme": "batch"}, {"acme": "batch"})
    spec = change.after["spec"]
    spec["lua"] = [{**spec["lua"][0], "inline": "-- another"}]
    verdicts = classify(change)
    assert [verdict.severity for verdict in verdicts] == [AGAIN]
    assert "spec.lua[0].inline" in verdicts[0].reason


@pytest.mark.parametrize(
    ("op", "before", "after", "what", "reason"),
    [
        ("create", None, -10, "priority -10", "refused (429)"),
        ("update", -10, 5, "priority -10 -> 5", "let through"),
        ("update", 0, -1, "priority 0 -> -1", "refused (429)"),
        ("delete", -10, None, "deleted", "its tier or its model"),
    ],
)
def test_a_priority_names_the_models_tenants(
    op: Op, before: int | None, after: int | None, what: str, reason: str
) -> None:
    (row,) = report("a", [of_objective(op, before, after)], CALLERS).rows
    assert (row.severity, row.what, row.model, row.tenants) == (LIVE, what, "glm", ("globex", "initech"))
    assert reason in row.reason


@pytest.mark.parametrize("op", ["create", "update", "replace", "delete"])
@pytest.mark.parametrize("kind", ["EnvoyExtensionPolicy", "InferenceObjective"])
def test_bodies_that_say_nothing_have_a_verdict(kind: str, op: Op) -> None:
    body = {"kind": kind, "metadata": {"name": "a"}}
    change = Change(
        op=op,
        type=f"kubernetes:x/v1:{kind}",
        name="a",
        before={} if op == "create" else body,
        after={} if op == "delete" else {**body, "spec": {"x": 1}},
    )
    verdicts: list[Verdict] = classify(change)
    assert verdicts
    assert all(verdict.what and verdict.reason for verdict in verdicts)
