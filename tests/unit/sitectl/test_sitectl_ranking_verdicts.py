"""Verdicts on what leads requests to rank around a model's pool."""

from __future__ import annotations

import pytest

from components.models.ranking import ranking_backend, servers_service
from sitectl.change.changes import Change
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("opening 3", "002.04")

OBJECTS = [
    *ranking_backend("rerank", "m", port=8000),
    servers_service("rerank", "m", selector={"app.kubernetes.io/name": "model-server"}, port=8000),
]


@pytest.mark.parametrize("body", OBJECTS, ids=lambda body: str(body["kind"]))
def test_the_way_around_a_pool_is_the_models_and_ends_no_request(body: dict[str, object]) -> None:
    change = Change(
        op="update", type=f"kubernetes:v1:{body['kind']}", name="way", before=body, after={**body, "spec": {"new": 1}}
    )
    (verdict,) = classify(change)
    assert (verdict.severity, verdict.model) == (Severity.LIVE, "rerank")
    assert "not known here" not in verdict.reason
