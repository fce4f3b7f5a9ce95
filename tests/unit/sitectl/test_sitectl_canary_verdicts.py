"""Verdicts on canaries beside those that are recorded: a share by its tenants, and a model that leaves with its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sitectl.change.changes import Change, Op
from sitectl.change.report import report
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("opening 3", "opening 8")

CANARY = "chat--0a1b2c3d"
CALLERS = {"acme": {"chat"}, "globex": {"other"}}


def changed(op: Op, type_: str, before: dict[str, Any], after: dict[str, Any] | None = None) -> Change:
    return Change(op=op, type=f"kubernetes:{type_}", name="a", before=before, after=after or {})


def callers(canary: dict[str, Any] | None) -> dict[str, Any]:
    content = {"tenants": {name: {"models": sorted(models)} for name, models in CALLERS.items()}}
    content |= {"canaries": {"chat": canary}} if canary else {}
    return {"kind": "ConfigMap", "metadata": {"name": "callers-tenants"}, "data": {"tenants.json": json.dumps(content)}}


def canary(percent: int = 25, revision: str = CANARY, **pinned: str) -> dict[str, Any]:
    return {"percent": percent, "revision": revision, "sticky": "session", "pinned": pinned}


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (None, canary(5), "canary of chat: none -> 5 % of its sessions"),
        (canary(), canary(revision="chat--00000000"), f"25 % of its sessions by {CANARY} -> chat--00000000"),
        (canary(), canary(acme="stable"), "tenant acme: chat by the share -> pinned to stable"),
        (canary(acme="canary"), canary(), "tenant acme: chat pinned to canary -> by the share"),
        # It may not call the model.
        (canary(), canary(globex="stable"), "tenants stay as they are"),
    ],
)
def test_who_moves_to_or_from_a_canary_is_shown(before: Any, after: Any, what: str) -> None:
    (row,) = classify(changed("update", "core/v1:ConfigMap", callers(before), callers(after)))
    assert (row.severity, what in row.what) == (Severity.LIVE, True), row
    assert row.tenants in ((), ("acme",))


def route(name: str) -> Change:
    body = {"kind": "AIGatewayRoute", "metadata": {"name": name}}
    return changed("delete", "aigateway.envoyproxy.io/v1beta1:AIGatewayRoute", body)


def test_with_its_model_a_canary_has_no_other_replicas() -> None:
    alone = report("prod", [route(CANARY)], CALLERS).rows
    assert [(row.severity, row.what) for row in alone] == [(Severity.LIVE, "the revision's route goes")]
    both = report("prod", [route(CANARY), route("chat")], CALLERS).rows
    assert [row.what for row in both] == ["the model can no longer be called"] * 2
