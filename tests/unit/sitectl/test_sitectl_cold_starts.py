"""How long a change's replicas need by their proofs, beside what their probes let pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sitectl import cold_starts, words
from sitectl.changes import Change
from sitectl.cold_starts import ColdStart
from sitectl.errors import Exit
from sitectl.report import report
from stacks.plan.site_plan import plan_file
from tests.unit.sitectl.sites_to_work_on import PREVIEWS, ROOT, run

pytestmark = pytest.mark.row("opening 1", "001.30")

STARTS = {"glm": ColdStart(alone_s=600, together_s=1100)}


def server(name: str, image: str, replicas: int = 3) -> dict[str, Any]:
    """A model's Deployment; its probe lets a quarter of an hour pass, and its pods end within a minute."""
    container = {
        "name": "engine",
        "image": image,
        "startupProbe": {"periodSeconds": 5, "failureThreshold": 180},
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "m", "labels": {"app.kubernetes.io/instance": name}},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 60}},
        },
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> Change:
    kind, name = "kubernetes:apps/v1:Deployment", after["metadata"]["name"]
    return Change(op="update" if before else "create", type=kind, name=name, before=before, after=after)


def test_the_reference_sites_starts_are_those_of_its_blocks() -> None:
    """`cold start  624 s, ...; all 2 at once 1,128 s`, as the README shows."""
    assert cold_starts.of_plan(plan_file(ROOT / "Pulumi.prod.yaml"))["glm-5-1"] == ColdStart(
        alone_s=624, together_s=1128
    )


def test_simulated_models_promise_no_start() -> None:
    assert cold_starts.of_plan(plan_file(ROOT / "Pulumi.lab.yaml")) == {}


def test_a_rollout_is_one_start_after_the_other() -> None:
    rolled = report("s", [changed(server("glm", "a:1"), server("glm", "a:2"))], {}, starts=STARTS)
    assert (rolled.expected_start_s, rolled.cold_start_s) == (3 * 600, 3 * (900 + 60))
    assert "cold start about 30 min, at most 48 min" in " ".join(words.plan(rolled).split())


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, server("glm", "a:1")), (server("glm", "a:1"), server("glm", "a:1", 5))],
    ids=["new", "more replicas"],
)
def test_replicas_that_start_at_once_read_together(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert report("s", [changed(before, after)], {}, starts=STARTS).expected_start_s == 1100


def test_fewer_replicas_start_nothing() -> None:
    cut = report("s", [changed(server("glm", "a:1"), server("glm", "a:1", 1))], {}, starts=STARTS)
    assert (cut.expected_start_s, cut.cold_start_s) == (None, 0)
    assert dict(words.figures(cut))["cold start"] == "none"


def test_without_a_proof_of_each_model_the_bound_stays_alone() -> None:
    both = [changed(server(name, "a:1"), server(name, "a:2")) for name in ("glm", "other")]
    shown = report("s", both, {}, starts=STARTS)
    assert shown.expected_start_s is None
    assert dict(words.figures(shown))["cold start"] == "at most 48 min"
    assert [row.expected_start_s for row in shown.rows] == [1800, None]


@pytest.mark.parametrize("starts", [[], {"glm": {"alone_s": 1}}, {"glm": {"alone_s": "x", "together_s": 1}}, "glm"])
def test_a_saved_preview_of_another_form_is_refused(checkout_folder: Path, tmp_path: Path, starts: Any) -> None:
    preview = json.loads((PREVIEWS / "engine-image-bump.json").read_text())
    (tmp_path / "p.json").write_text(json.dumps(preview | {"cold_starts": starts}))
    result = run(checkout_folder, "plan", "lab", "--from", str(tmp_path / "p.json"))
    assert result.status != Exit.OK
    assert "fix: " in result.err


def test_a_saved_preview_keeps_them(checkout_folder: Path, tmp_path: Path) -> None:
    preview = json.loads((PREVIEWS / "engine-image-bump.json").read_text())
    given = {name: {"alone_s": 60, "together_s": 90} for name in ("glm-5-1", "qwen3-32b")}
    (tmp_path / "p.json").write_text(json.dumps(preview | {"cold_starts": given}))
    out = " ".join(run(checkout_folder, "plan", "lab", "--from", str(tmp_path / "p.json")).out.split())
    assert "cold start about 2 min, at most 215 min" in out
