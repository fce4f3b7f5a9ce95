"""What the engine reported for 44 edits, judged: worst first, GPUs, restarts, tenants."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from policy.model import Resource
from sitectl.change.changes import between, of_preview
from sitectl.change.report import SiteReport, of_preview_document
from sitectl.change.verdicts.model import Severity
from tests.fixtures.previews import kept
from tests.fixtures.previews.scenarios import SCENARIOS
from tests.unit.sitectl.expected_recordings import EXPECTED

pytestmark = pytest.mark.row("opening 3", "C.06")

BY_HAND = {"drift-replicas"}


def judged(name: str) -> SiteReport:
    return of_preview_document("lab", kept.read(name))


# Few enough resources that every one of their rows is expected above.
WHOLE = [name for name, expected in EXPECTED.items() if len(expected.rows) == len(judged(name).rows)]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recorded_change_is_judged_as_it_should_be(name: str) -> None:
    report, expected = judged(name), EXPECTED[name]
    there = [(row.severity, row.resource, row.what) for row in report.rows]
    for severity, resource, what in expected.rows:
        assert [row for row in there if row[0] is severity and row[1].endswith(resource) and what in row[2]], (
            severity,
            resource,
            what,
            there,
        )
    assert (report.gpus, report.restarts, report.tenants) == (expected.gpus, expected.restarts, expected.tenants)
    assert report.cold_start_s == expected.cold_start_s
    assert expected.errors in "\n".join(report.errors)
    assert "Traceback" not in "\n".join(report.errors), "what follows from an error is no news"
    assert bool(report.errors) == bool(expected.errors)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_worst_is_first_and_every_row_has_a_reason(name: str) -> None:
    rows = judged(name).rows
    assert [row.severity for row in rows] == sorted(row.severity for row in rows)
    assert all(row.reason and row.what for row in rows)
    worst = min((row[0] for row in EXPECTED[name].rows), default=None)
    assert judged(name).worst is worst


def test_most_recordings_are_expected_to_the_last_row() -> None:
    assert len(WHOLE) >= 20


def test_each_scenario_has_a_recording_and_an_expectation() -> None:
    recorded = set(kept.names())
    assert recorded == set(SCENARIOS) | BY_HAND == set(EXPECTED)
    assert len(SCENARIOS) >= 20


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_comparison_of_inputs_agrees_with_the_engine(name: str) -> None:
    """`diff`, which asks no engine, names the same operations and the same forcing fields."""
    engine = [change for change in of_preview(kept.read(name)) if change.replaced_by != ("provider",)]
    before = [Resource(type=change.type, name=change.name, body=change.before) for change in engine if change.before]
    after = [Resource(type=change.type, name=change.name, body=change.after) for change in engine if change.after]
    # A moved object is one that goes and one that comes to those who only see objects.
    places = {"metadata.namespace", "metadata.name"}
    moved = {change.name for change in engine if places & {*change.replaced_by}}
    # Of a Secret, and of a machine's config, inputs cannot tell that a value changed: both sides are hidden.
    hidden = {
        change.name
        for change in engine
        if change.op == "update" and (change.kind == "Secret" or "stdin" in change.touched)
    }
    offline = {change.name: change.op for change in between(before, after)}
    for step in engine:
        if step.name not in moved | hidden:
            assert offline[step.name] == step.op, step.label


def test_no_recording_holds_a_secret_or_a_place() -> None:
    forms = re.compile(
        r"sk-[A-Za-z0-9_-]{8,}|-----BEGIN|eyJ[A-Za-z0-9_-]{10,}|certificate-authority-data|client-key|/tmp/|/root/|/home/"
    )
    for name in kept.names():
        text = kept.text(name)
        assert not forms.search(text), (name, forms.search(text))
        for change in of_preview(json.loads(text)):
            for body in (change.before, change.after):
                if change.kind == "Secret" and body:
                    values = [body.get("data"), body.get("stringData")]
                    assert all(_hidden(value) for value in values), (name, change.label)


def _hidden(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_hidden(inner) for inner in value.values())
    return value in (None, "[secret]")


def test_lines_that_only_say_that_it_failed_are_left_out_beside_one_that_says_why() -> None:
    failed = [
        {"severity": "error", "message": text}
        for text in (
            "error: an unhandled error occurred: program exited with non-zero exit code: 1\n",
            "error: qwen3-32b does not fit",
            "error: preview failed",
        )
    ]
    assert of_preview_document("lab", {"steps": [], "diagnostics": failed}).errors == ["qwen3-32b does not fit"]
    assert of_preview_document("lab", {"steps": [], "diagnostics": failed[2:]}).errors == ["preview failed"]


@pytest.mark.parametrize("name", sorted(path.stem for path in kept.WHOLE.glob("*.json")))
def test_what_is_folded_unfolds_to_what_the_engine_printed(name: str) -> None:
    printed, base = kept.read(name), kept.base()
    unfolded = kept.unfolded(json.loads(kept.written(kept.folded(printed, base))), base)
    site = [json.loads(document.pop("config")[kept.SITE]) for document in (printed, unfolded)]
    assert site[0] == site[1]
    assert unfolded == kept.shortened(printed)


def test_a_volume_that_the_engine_leaves_behind_is_not_lost() -> None:
    preview = kept.read("model-removed")
    (step,) = (step for step in preview["steps"] if "PersistentVolumeClaim" in step["urn"].rpartition("::")[0])
    step["oldState"]["retainOnDelete"] = True
    (row,) = (row for row in of_preview_document("lab", preview).rows if row.resource.startswith("PersistentVolume"))
    assert (row.severity, row.what) == (Severity.LIVE, "leaves the volume to itself")
