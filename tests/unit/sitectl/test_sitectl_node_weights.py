"""What plan and comment state of weights on each node's own disk, and of a site that changes its place."""

from __future__ import annotations

from typing import Any

import pytest

from components.models import node_weights, weights
from components.models.model_server import deployment
from sitectl.change.changes import Change, Op
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity
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


def test_jobs_of_weights_take_nothing_away_from_who_uses_a_model() -> None:
    """They were shown as what is deleted and made again, and whose users notice it."""
    assert MODEL.weights
    bring, prune = (make("qwen3-32b", "m", MODEL.weights) for make in (weights.job, weights.prune_job))
    severity, what, reason, model = judged("replace", bring, replaced_by=("spec.template",))
    assert (severity, what, model) == (Severity.LIVE, "runs again: spec.template", "qwen3-32b")
    assert "not downloaded again" in reason
    assert judged("delete", bring)[0] == Severity.LIVE
    assert judged("create", bring)[1] == "brings weights before servers start on them"
    assert judged("create", prune)[1].startswith("removes earlier commits")
    other = {"kind": "Job", "metadata": {"name": "x"}, "spec": {}}
    assert judged("delete", other)[:2] == (Severity.REPLACED, "deleted")


def test_a_change_of_place_restarts_all_replicas_from_cold_and_deletes_what_was_shared() -> None:
    """And a shared volume that is protected is not deleted: the engine refuses that, in preview."""
    shared = plan_values(prod(), "site.yaml").models["qwen3-32b"].stable
    bodies = [
        deployment("qwen3-32b", "m", model.spec.server, model.server, model.engine, model.weights)
        for model in (shared, MODEL)
    ]
    change = Change(op="update", type="kubernetes:apps/v1:Deployment", name="s", before=bodies[0], after=bodies[1])
    (verdict,) = classify(change)
    assert (verdict.severity, verdict.restarts) == (Severity.RESTARTS, 4)
    assert verdict.cold_start_s > 4 * 60
    assert "volumes" in verdict.reason
    claim = weights.claim("qwen3-32b", "m", labels={}, weight_bytes=34e9, storage_class="longhorn")
    assert judged("delete", claim)[:2] == (Severity.IRREVERSIBLE, "deletes the volume of 35Gi and what is on it")


def test_volumes_and_daemon_sets_of_others_are_judged_as_before() -> None:
    other = {"kind": "PersistentVolume", "metadata": {"name": "x"}, "spec": {"storageClassName": "fast"}}
    assert judged("delete", other)[:2] == (Severity.REPLACED, "deleted")
    agent = {"kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "m"}}
    assert judged("delete", agent)[:2] == (Severity.REPLACED, "deleted")
