"""A changed commit of a model whose volume has room for one: preview warns, where only the engine knows the earlier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sitectl.offline import checkout, warned
from stacks.facts import catalogue
from tests.unit.sitectl.sites_to_work_on import edit, make_checkout

pytestmark = pytest.mark.row("000.07", "opening 3")

EARLIER, SERVED = "0" * 40, catalogue.load("qwen3-32b-fp8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=("prod",), accounts=False)


def file_of(project: Path, **weights: Any) -> Path:
    """The site's file, with these settings of its weights."""
    edit(project, "prod", storage={"weights": weights})
    return project / "Pulumi.prod.yaml"


def preview(project: Path, *, op: str = "update", earlier: str = EARLIER) -> dict[str, Any]:
    """As the engine reports a qwen3-32b that serves another commit than its Deployment did."""
    resources = checkout.declare(project, checkout.site_files(project, ["prod"]))["prod"].resources
    served = next(
        resource for resource in resources if resource.label.endswith("Deployment inference-models/qwen3-32b")
    )
    after = json.dumps(served.body)
    assert SERVED.revision in after
    before = after.replace(SERVED.revision, earlier)
    step = {"op": op, "urn": f"urn:pulumi:prod::p::{served.type}::{served.name}"}
    states = {"oldState": before, "newState": after}
    return {
        "steps": [step | {name: {"type": served.type, "inputs": json.loads(text)} for name, text in states.items()}]
    }


def warnings(project: Path, file: Path, **of_preview: Any) -> list[str]:
    shown = warned.of_file(file, project, preview(project, **of_preview))
    return [text for text in shown if "storage.weights.revisions" in text]


@pytest.mark.slow
def test_a_new_commit_without_room_beside_the_served_one_is_a_warning(project: Path) -> None:
    file = file_of(project, revisions=1)
    (text,) = warnings(project, file)
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "revisions: 1" in text)
    assert text.startswith(f"Pulumi.prod.yaml:{line}:storage.weights.revisions: is room for one commit of qwen3-32b")
    assert "comes beside Qwen/Qwen3-32B-FP8 at 00000000, which its servers read" in text
    assert "fix: write revisions: 2" in text


@pytest.mark.slow
def test_the_fix_ends_the_warning(project: Path) -> None:
    assert warnings(project, file_of(project, revisions=2)) == []


def test_the_same_commit_and_a_new_model_need_no_other_room(project: Path) -> None:
    file = file_of(project, revisions=1)
    assert warnings(project, file, op="create") == []
    assert warnings(project, file, earlier=SERVED.revision) == []
    assert warned.of_file(file, project, {}) == warned.of_file(file, project, {"steps": []})


def test_a_server_that_read_no_weights_before_leaves_room(project: Path) -> None:
    """As a simulator does, whose volume is empty."""
    file, changed = file_of(project, revisions=1), preview(project)
    del changed["steps"][0]["oldState"]["inputs"]["spec"]["template"]["spec"]["initContainers"]
    assert not [text for text in warned.of_file(file, project, changed) if "storage.weights.revisions" in text]


@pytest.mark.slow
def test_a_volume_that_a_person_fills_is_theirs(project: Path) -> None:
    assert warnings(project, file_of(project, revisions=1, source="volume")) == []
