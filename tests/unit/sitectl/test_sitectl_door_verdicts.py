"""Verdicts on the front door's policies, and on what has Envoy ask a picker."""

from __future__ import annotations

import pytest

from components.gateway.front_door import listed_models
from components.gateway.pickers import Picker, client_policy, picker_policy
from components.gateway.traffic_policies import target_gateway
from sitectl.change.changes import Change, Op
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.handover import handover
from tests.unit.sitectl.test_sitectl_verdicts import AGAIN, LIVE, kube

pytestmark = pytest.mark.row("opening 3")

PICKER = picker_policy(
    "g", target_gateway(), listener="g/i/i", picker=Picker(pool="a", namespace="m", authority="a.m.svc:1", parallel=1)
)


@pytest.mark.parametrize(
    "change",
    [
        kube("create", "EnvoyPatchPolicy", {}, PICKER),
        kube("delete", "EnvoyPatchPolicy", PICKER, {}),
        kube("create", "EnvoyPatchPolicy", {}, client_policy("g", target_gateway(), listener="g/i/i")),
    ],
    ids=["more", "less", "turns of tenants"],
)
def test_a_filter_more_or_less_replaces_the_listener(change: Change) -> None:
    (row,) = classify(change)
    assert (row.severity, row.what) == (AGAIN, "Envoy replaces its listener")


def test_an_older_front_door_that_goes_is_no_picker() -> None:
    """It has the filters of all pickers in it."""
    older = {**PICKER, "metadata": {**PICKER["metadata"], "name": "front-door"}}
    gone = kube("delete", "EnvoyPatchPolicy", older, {})
    (row,) = classify(gone, handover([gone]))
    assert row.what == "the front door's filters go"


def test_a_site_that_is_made_or_destroyed_has_no_listener_to_replace() -> None:
    door = listed_models("g", target_gateway(), listener="g/i/i", model_lists={}, names={})
    door["metadata"]["name"] = "front-door"
    steps: tuple[tuple[Op, str], ...] = (("create", "asks the picker of a"), ("delete", "asks the picker of a no more"))
    for op, what in steps:
        changes = [
            kube(op, "EnvoyPatchPolicy", *(({}, body) if op == "create" else (body, {}))) for body in (door, PICKER)
        ]
        (row,) = classify(changes[1], handover(changes))
        assert (row.severity, row.what) == (LIVE, f"Envoy {what}")


@pytest.mark.parametrize(
    ("kind", "name", "op", "what", "reason"),
    [
        ("EnvoyPatchPolicy", "front-door", "create", "closes the front door to requests without a key", "new"),
        ("EnvoyPatchPolicy", "listed-models", "create", "gives Envoy each tenant's models and all aliases", "new"),
        ("EnvoyPatchPolicy", "openai-errors", "create", "gives errors OpenAI's form", "new"),
        ("EnvoyPatchPolicy", "other", "create", "patches Envoy's configuration", "new"),
        ("EnvoyPatchPolicy", "front-door", "delete", "the front door's filters go", "keys are checked all the same"),
        ("EnvoyPatchPolicy", "listed-models", "delete", "no alias is known", "lists of models are empty"),
        ("EnvoyPatchPolicy", "openai-errors", "delete", "errors are Envoy's own text", "cannot read them"),
        ("ClientTrafficPolicy", "inference", "create", "sets limits and timeouts", "new"),
        ("BackendTrafficPolicy", "inference", "delete", "Envoy's defaults hold instead", "long prompts"),
        ("BackendTrafficPolicy", "portal", "delete", "Envoy's defaults hold instead", "no client of the portal"),
        ("SecurityPolicy", "tenants", "delete", "the gateway's keys are taken away", "every request gets 401"),
    ],
)
def test_policies_of_the_front_door_are_reported_for_what_they_do(
    kind: str, name: str, op: Op, what: str, reason: str
) -> None:
    """Patches of keys, models, errors were shown as limits or timeouts; a missing SecurityPolicy as an open door."""
    body = {"kind": kind, "metadata": {"name": name, "namespace": "g"}, "spec": {"jsonPatches": []}}
    before, after = ({}, body) if op == "create" else (body, {})
    (verdict,) = classify(Change(op=op, type=f"kubernetes:g/v1:{kind}", name=name, before=before, after=after))
    assert what in verdict.what
    assert reason in verdict.reason
