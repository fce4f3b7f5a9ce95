"""Verdicts on Cilium where the program changes it: what a new version restarts, and that no object is taken away."""

from __future__ import annotations

from typing import Any

import pytest

from components.machines import machine_commands
from components.machines.pod_network import taken_over
from sitectl.change.changes import Change, Op
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("opening 3")

ANEW, AGAIN, LIVE = Severity.REPLACED, Severity.RESTARTS, Severity.LIVE


def agents(version: str, **data: Any) -> dict[str, Any]:
    container = {"name": "cilium-agent", "image": f"quay.io/cilium/cilium:v{version}"}
    spec = {
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}},
        "template": {"spec": {"containers": [container]}},
        **data,
    }
    meta = {"name": "cilium", "namespace": "kube-system"}
    return taken_over({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}, waited=True)


def settings(**data: str) -> dict[str, Any]:
    meta = {"name": "cilium-config", "namespace": "kube-system"}
    return taken_over({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, waited=True)


def change(op: Op, before: dict[str, Any], after: dict[str, Any], **more: Any) -> Change:
    kind = (after or before).get("kind")
    type_ = f"kubernetes:core/v1:{kind}" if kind else "command:local:Command"
    return Change(op=op, type=type_, name="pod-network", before=before, after=after, **more)


def leftovers(*lines: str) -> dict[str, str]:
    return {"create": machine_commands.leftovers(), "stdin": "\n".join(lines)}


CASES: dict[str, tuple[Change, Severity, str]] = {
    "taken over": (change("create", {}, agents("1.20.2")), LIVE, "taken over from Talos"),
    "a new version": (
        change("update", agents("1.20.2"), agents("1.20.3")),
        AGAIN,
        "restarts Cilium's agent 1.20.2 -> 1.20.3 on each node, 2 at a time",
    ),
    "only other settings": (change("update", settings(a="b"), settings(a="c")), LIVE, "changes data.a"),
    "the program leaves it": (change("delete", agents("1.20.2"), {}, retained=True), LIVE, "left to the cluster"),
    "a fixed field": (change("replace", agents("1"), agents("1"), replaced_by=("spec.selector",)), ANEW, "`up` fails"),
    "nothing is left over": (change("create", {}, leftovers("v1 A b")), LIVE, "lists Cilium's objects"),
    "something is left over": (
        change("update", leftovers("v1 A b", "v1 ConfigMap kube-system/old"), leftovers("v1 A b")),
        ANEW,
        "deletes ConfigMap kube-system/old",
    ),
    "the list goes": (change("delete", leftovers("v1 A b"), {}), LIVE, "leaves Cilium to the machines"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_the_pod_network_is_judged(name: str) -> None:
    made, severity, what = CASES[name]
    (verdict,) = classify(made)
    assert (verdict.severity, what in verdict.what) == (severity, True), verdict.what


def test_a_step_over_a_minor_version_is_named_as_the_upgrade_path_does() -> None:
    first, second = classify(change("update", agents("1.18.9"), agents("1.20.2")))
    assert (first.severity, first.what) == (ANEW, "Cilium: the step leaves out a minor version")
    assert second.severity is AGAIN
