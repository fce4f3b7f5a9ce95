"""Verdicts on adapters in what gatekeepers know: who gets one, who loses one, and that hundreds are one row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sitectl.change.changes import Change
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("001.13", "opening 3")

LIVE, REPLACED = Severity.LIVE, Severity.REPLACED
TENANTS = {"acme": ["chat"], "globex": ["chat", "other"], "umbrella": ["other"]}
LEGAL = {"legal": {"model": "chat", "tenants": None}}


def body(adapters: dict[str, Any], **parts: Any) -> dict[str, Any]:
    content = {"tenants": {name: {"models": models} for name, models in TENANTS.items()}, "adapters": adapters, **parts}
    return {"kind": "ConfigMap", "metadata": {"name": "callers-tenants"}, "data": {"tenants.json": json.dumps(content)}}


def rows(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[Severity, str, tuple[str, ...]]]:
    change = Change(op="update", type="kubernetes:core/v1:ConfigMap", name="a", before=before, after=after)
    return [(row.severity, row.what, tuple(row.tenants)) for row in classify(change)]


def of(*tenants: str) -> dict[str, Any]:
    return {"legal": {"model": "chat", "tenants": list(tenants)}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, LEGAL, [(LIVE, "adapter legal of chat: may be called by acme, globex", ("acme", "globex"))]),
        ({}, of("acme"), [(LIVE, "adapter legal of chat: may be called by acme", ("acme",))]),
        (LEGAL, {}, [(REPLACED, "adapter legal of chat: gone, of acme, globex", ("acme", "globex"))]),
        (LEGAL, of("acme"), [(REPLACED, "adapter legal: no longer for globex", ("globex",))]),
        (of("acme"), of("acme", "globex"), [(LIVE, "adapter legal: for globex too", ("globex",))]),
        # It may not call the model.
        (of("acme"), of("acme", "umbrella"), [(LIVE, "tenants stay as they are", ())]),
    ],
)
def test_who_gets_an_adapter_and_who_loses_it_is_shown(before: Any, after: Any, expected: Any) -> None:
    assert rows(body(before), body(after)) == expected


def test_hundreds_are_one_row() -> None:
    many = {f"task-{number}": {"model": "chat", "tenants": ["acme"]} for number in range(200)}
    assert rows(body({}), body(many)) == [(LIVE, "200 adapters of chat: may be called by acme", ("acme",))]


def test_what_else_gatekeepers_get_is_named() -> None:
    change = Change(
        op="update",
        type="kubernetes:core/v1:ConfigMap",
        name="a",
        before=body({}, pools={}),
        after=body({}, pools={"chat": {"queue": 8}}),
    )
    (row,) = classify(change)
    assert (row.what, "other parts change: pools" in row.reason) == ("tenants stay as they are", True)
