"""Overflow to a model that could not answer in the place of the other one: each is refused at its own key."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("004.14")

O = "models.glm-5-1.overflow"  # noqa: E741 - short, as the tables of others
TO = f"{O}.to"
DECIDED: dict[str, Any] = {"callers": {"decided_by": "gatekeeper"}}
OVERFLOWS = {**DECIDED, O: {"to": "qwen3-32b"}}
RIGHT = {TO: "qwen3-32b"}
_OTHER = "models.qwen3-32b.catalogue"
THIRD: dict[str, Any] = {"catalogue": "qwen3-0.6b", "server": {"gpus": 1, "replicas": 1}}
VECTORS = {**THIRD, "catalogue": "bge-m3"}
_NO_PROMISE = {"models.qwen3-32b.slo": None, "models.qwen3-32b.load": None}
WRONG: dict[str, Wrong] = {
    "no gatekeeper": Wrong({O: {"to": "qwen3-32b"}}, O, "needs the gatekeeper", DECIDED),
    "model that is none": Wrong({**DECIDED, O: {"to": "qwen3-32"}}, TO, "did you mean 'qwen3-32b'", RIGHT),
    "itself": Wrong({**DECIDED, O: {"to": "glm-5-1"}}, TO, "is the model itself", RIGHT),
    "a chain": Wrong(
        {**OVERFLOWS, "models.third": THIRD, "models.qwen3-32b.overflow": {"to": "third"}},
        TO,
        "has an overflow of its own",
        {"models.qwen3-32b.overflow": None},
    ),
    "no writer of answers": Wrong(
        {**DECIDED, "models.third": VECTORS, O: {"to": "third"}}, TO, "writes no answers", RIGHT
    ),
    "figures of two models": Wrong(
        {**DECIDED, "models.third": {**VECTORS, "overflow": {"to": "qwen3-32b"}}},
        "models.third.overflow",
        "figures of two models",
        {"models.third.overflow": None},
    ),
    "no tools": Wrong(
        {**OVERFLOWS, **_NO_PROMISE, _OTHER: "gemma-3-27b"},
        TO,
        "refuses requests with tools",
        {_OTHER: "qwen3-32b-fp8"},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_overflow_is_refused_at_its_key(name: str) -> None:
    refused_and_fixed(WRONG[name])


def warned(**changes: Any) -> dict[str, str]:
    plan = plan_values(changed(prod_with_links(), {**OVERFLOWS, **changes}), "site.yaml")
    return {warning.key: warning.what for warning in plan.warnings if "overflow" in warning.key}


def test_who_can_never_overflow_is_a_warning() -> None:
    """prod's tenant archive may call one of the models alone."""
    assert warned(**{"tenants.search.overflow": "accept"}) == {}
    assert [*warned()] == [O]
    assert [*warned(**{"tenants.archive.overflow": "accept"})] == ["tenants.archive.overflow", O]
    # Who has one revision for sure keeps it.
    canary = {"percent": 5, "pinned": {"search": "stable"}, "server": {"replicas": 1}}
    pinned = {"tenants.search.overflow": "accept", "models.glm-5-1.canary": canary}
    assert [*warned(**pinned)] == ["tenants.search.overflow", O]
    alone = changed(prod_with_links(), {**DECIDED, "tenants.search.overflow": "accept"})
    (what,) = (warning.what for warning in plan_values(alone, "site.yaml").warnings if "overflow" in warning.key)
    assert "no model of the site has an overflow" in what
