"""How long a change's replicas need by their proofs, beside what their probes let pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import previews
from sitectl.change import cold_starts
from sitectl.change.changes import Change
from sitectl.change.cold_starts import ColdStart
from sitectl.change.report import report
from sitectl.output import words
from sitectl.output.markdown import document
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from stacks.site.loader import KEY
from tests.fixtures.previews import kept
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run, stand_in_pulumi

pytestmark = pytest.mark.row("opening 1", "001.30")

STARTS = {"glm": ColdStart(alone_s=600, together_s=1100)}


def server(name: str, image: str, replicas: int = 3, strategy: str = "RollingUpdate") -> dict[str, Any]:
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
            "strategy": {"type": strategy},
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 60}},
        },
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> Change:
    kind, name = "kubernetes:apps/v1:Deployment", after["metadata"]["name"]
    return Change(op="update" if before else "create", type=kind, name=name, before=before, after=after)


def test_the_reference_sites_starts_are_those_of_its_blocks() -> None:
    """`cold start  1,380 s, ...; all 2 at once 2,640 s`, as the README shows."""
    assert cold_starts.of_plan(plan_file(ROOT / "Pulumi.prod.yaml"))["glm-5-1"] == ColdStart(
        alone_s=1380, together_s=2640
    )


def test_simulated_models_promise_no_start() -> None:
    assert cold_starts.of_plan(plan_file(ROOT / "Pulumi.lab.yaml")) == {}


def test_a_rollout_is_one_start_after_the_other() -> None:
    rolled = report("s", [changed(server("glm", "a:1"), server("glm", "a:2"))], {}, starts=STARTS)
    assert (rolled.expected_start_s, rolled.cold_start_s) == (3 * 600, 3 * (900 + 60))
    assert "cold start about 30 min, at most 48 min" in " ".join(words.plan(rolled).split())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, server("glm", "a:1")),
        (server("glm", "a:1"), server("glm", "a:1", 5)),
        (server("glm", "a:1", strategy="Recreate"), server("glm", "a:2", strategy="Recreate")),
    ],
    ids=["new", "more replicas", "not one after the other"],
)
def test_replicas_that_start_at_once_read_together(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert report("s", [changed(before, after)], {}, starts=STARTS).expected_start_s == 1100


def test_one_replica_more_has_its_volume_for_itself() -> None:
    """Those that serve read nothing."""
    assert (
        report("s", [changed(server("glm", "a:1"), server("glm", "a:1", 4))], {}, starts=STARTS).expected_start_s == 600
    )


def test_a_deployment_without_replicas_starts_nothing() -> None:
    both = [server("glm", image, 0, "Recreate") for image in ("a:1", "a:2")]
    assert report("s", [changed(*both)], {}, starts=STARTS).cold_start_s == 0


def test_fewer_replicas_start_nothing() -> None:
    cut = report("s", [changed(server("glm", "a:1"), server("glm", "a:1", 1))], {}, starts=STARTS)
    assert (cut.expected_start_s, cut.cold_start_s) == (None, 0)
    assert [row.expected_start_s for row in cut.rows] == [None]
    assert dict(words.figures(cut))["cold start"] == "none"


def test_without_a_proof_of_each_model_the_bound_stays_alone() -> None:
    both = [changed(server(name, "a:1"), server(name, "a:2")) for name in ("glm", "other")]
    shown = report("s", both, {}, starts=STARTS)
    assert shown.expected_start_s is None
    assert dict(words.figures(shown))["cold start"] == "at most 48 min"
    assert [row.expected_start_s for row in shown.rows] == [1800, None]


def test_the_longest_of_several_models_is_expected() -> None:
    both = [changed(server(name, "a:1"), server(name, "a:2")) for name in ("glm", "other")]
    starts = {**STARTS, "other": ColdStart(alone_s=60, together_s=60)}
    shown = report("s", both, {}, starts=starts)
    assert dict(words.figures(shown))["cold start"] == "about 30 min, at most 48 min"
    assert "| about 30 min, at most 48 min |" in document([shown])


def test_what_is_no_model_and_restarts_sooner_hides_no_expectation() -> None:
    """A portal has no proof, and its pod is back within two minutes."""
    portals = [server("portal", image, 1) for image in ("a:1", "a:2")]
    for portal in portals:
        (container,) = portal["spec"]["template"]["spec"]["containers"]
        del container["startupProbe"], container["resources"]
    rolled = report("s", [changed(server("glm", "a:1"), server("glm", "a:2")), changed(*portals)], {}, starts=STARTS)
    assert [row.cold_start_s for row in rolled.rows] == [2880, 90]
    assert rolled.expected_start_s == 1800


@pytest.mark.parametrize("starts", [[], {"glm": {"alone_s": 1}}, {"glm": {"alone_s": "x", "together_s": 1}}, "glm"])
def test_a_saved_preview_of_another_form_is_refused(checkout_folder: Path, tmp_path: Path, starts: Any) -> None:
    preview = kept.read("engine-image-bump")
    (tmp_path / "p.json").write_text(json.dumps(preview | {"cold_starts": starts}))
    result = run(checkout_folder, "plan", "lab", "--from", str(tmp_path / "p.json"))
    assert result.status != Exit.OK
    assert "is not a preview of the engine" in result.err or "have not the form that sitectl writes" in result.err
    assert "fix: " in result.err


def test_a_saved_preview_keeps_them(checkout_folder: Path, tmp_path: Path) -> None:
    preview = kept.read("engine-image-bump")
    given = {name: {"alone_s": 60, "together_s": 90} for name in ("glm-5-1", "qwen3-32b")}
    (tmp_path / "p.json").write_text(json.dumps(preview | {"cold_starts": given}))
    out = " ".join(run(checkout_folder, "plan", "lab", "--from", str(tmp_path / "p.json")).out.split())
    assert "cold start about 2 min, at most 215 min" in out


@pytest.fixture
def berlin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a site that has the models of the recordings, on vLLM; `pulumi` prints a recording."""
    folder = make_checkout(tmp_path / "own", sites=())
    models = {name: {"catalogue": "qwen3-32b-fp8"} for name in ("glm-5-1", "qwen3-32b")}
    site = {"name": "berlin", "cluster": {"kubeconfig": "k"}, "gateway": {"port": 80}, "models": models, "tenants": {}}
    (folder / "Pulumi.berlin.yaml").write_text(yaml.safe_dump({"config": {KEY: site}}))
    stand_in_pulumi(tmp_path, "engine-image-bump", monkeypatch)
    return folder


def test_a_plan_and_the_comment_of_ci_expect_what_the_sites_file_is_proven_with(berlin: Path, tmp_path: Path) -> None:
    """In the table and, for the job that posts and has another checkout, in the saved preview."""
    starts = cold_starts.of_file(berlin / "Pulumi.berlin.yaml")
    longest = words.minutes(2 * starts["glm-5-1"]["alone_s"])
    result = run(berlin, "plan", "berlin", "--save", str(tmp_path / "saved.json"))
    assert f"cold start                 about {longest}, at most 215 min" in result.out, result.err
    assert previews.main(["--project", str(berlin), "--out", str(tmp_path)], {}) == Exit.OK
    for name in ("saved.json", "berlin.json"):
        assert json.loads((tmp_path / name).read_text())["cold_starts"] == starts


def test_a_site_that_is_not_valid_promises_nothing(berlin: Path) -> None:
    """Its mistakes are in the engine's own report."""
    file = berlin / "Pulumi.berlin.yaml"
    file.write_text(file.read_text().replace("qwen3-32b-fp8", "qwen3-32b-fp9"))
    assert cold_starts.of_file(file) == {}
