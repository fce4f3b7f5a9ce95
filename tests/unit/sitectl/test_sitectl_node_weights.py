"""What plan and comment state of weights on each node's own disk, and of a site that changes its place."""

from __future__ import annotations

from typing import Any

import pytest

from components.models import node_weights
from sitectl.changes import Change, Op
from sitectl.verdicts.classify import classify
from sitectl.verdicts.model import Severity
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 3", "003.09")

MODEL = plan_values(changed(prod(), ON_NODES), "site.yaml").models["qwen3-32b"].stable
assert MODEL.weights
VOLUME = node_weights.volume("m", MODEL.weights)
CLAIM = node_weights.claim("m", MODEL.weights)
FILLS = node_weights.daemon_set("qwen3-32b", "m", MODEL.weights, "hopper")


def judged(op: Op, body: dict[str, Any], **more: Any) -> tuple[Severity, str, str, str]:
    before, after = {"create": ({}, body), "delete": (body, {})}.get(op, (body, {**body, "changed": "yes"}))
    change = Change(
        op=op, type=f"kubernetes:v1:{body['kind']}", name="thing", before=dict(before), after=dict(after), **more
    )
    (verdict,) = classify(change)
    return verdict.severity, verdict.what, verdict.reason, verdict.model


@pytest.mark.parametrize("body", [VOLUME, CLAIM], ids=["volume", "claim"])
def test_a_folder_that_is_let_go_loses_no_weights(body: dict[str, Any]) -> None:
    """A claim that is deleted was shown as a volume that is lost with what is on it."""
    severity, what, reason, model = judged("delete", body)
    assert (severity, model) == (Severity.LIVE, "qwen3-32b")
    assert what == "no longer uses the folder of each GPU node"
    assert "the files stay on their disks" in reason
    severity, what, _, _ = judged("replace", body, replaced_by=("metadata.name",))
    assert (severity, what) == (Severity.LIVE, "uses another folder of each GPU node: metadata.name")
    assert judged("create", body)[1] == "uses a folder of each GPU node"


def test_what_fills_nodes_is_named() -> None:
    assert judged("create", FILLS)[1:3] == (
        "fills each GPU node",
        "new; the source serves every node, and servers wait for theirs",
    )
    assert judged("update", FILLS)[1] == "brings what is wanted to each GPU node"
    assert judged("delete", FILLS)[1] == "fills no node any more"


def test_volumes_and_daemon_sets_of_others_are_judged_as_before() -> None:
    other = {"kind": "PersistentVolume", "metadata": {"name": "x"}, "spec": {"storageClassName": "fast"}}
    assert judged("delete", other)[:2] == (Severity.REPLACED, "deleted")
    agent = {"kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "m"}}
    assert judged("delete", agent)[:2] == (Severity.REPLACED, "deleted")
