"""`sitectl plan`, the recorded previews and the program's own rules, on the real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab import session
from lab.paths import CHECKOUT
from sitectl.change.report import of_preview_document
from tests.fixtures.previews import kept
from tests.fixtures.previews.record import copy_project, preview, trimmed
from tests.fixtures.previews.scenarios import SCENARIOS

if TYPE_CHECKING:
    from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("opening 3", "C.06")


def plan(site: Site, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "sitectl", "plan", "lab", "--json", *arguments],
        cwd=CHECKOUT,
        env=session.environment(site.lab),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_site_as_its_file_says_has_no_change(site: Site) -> None:
    status, shown = plan(site)
    assert status == 0
    assert shown["rows"] == []


@pytest.mark.exhaustive
def test_plan_refuses_what_it_must_refuse(site: Site, tmp_path: Path) -> None:
    """What cannot be undone is first and stops a job."""
    document = yaml.safe_load(session.stack_file(site.lab).read_text())
    document["config"]["inference-platform:site"]["storage"]["storage_class"] = "another"
    file = tmp_path / "Pulumi.edited.yaml"
    file.write_text(yaml.safe_dump(document))
    status, shown = plan(site, "--config-file", str(file), "--refuse", "irreversible")
    assert status == 1
    assert shown["worst"] == "irreversible"
    assert shown["rows"][0]["severity"] == "irreversible"


# A deployment and a tenant; the others take minutes and are asked by `make test-all`.
ASKED_ALWAYS = {"replica-cut", "tenant-key-removed"}


def judged(preview_document: dict[str, Any]) -> dict[str, Any]:
    """What readers see of a preview: all rows, and the figures over them."""
    report = of_preview_document("lab", preview_document)
    return {
        "rows": sorted((row.severity.name, row.resource, row.what) for row in report.rows),
        "figures": (report.gpus, report.restarts, report.cold_start_s, report.tenants),
        "refused": bool(report.errors),
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ASKED_ALWAYS else pytest.mark.exhaustive)
        for name, scenario in sorted(SCENARIOS.items())
        if not scenario.over_canary
    ],
)
def test_the_recordings_are_what_the_engine_still_says(site: Site, name: str) -> None:
    """A recording that no longer holds would make the tests of verdicts tests of nothing."""
    live = judged(trimmed(preview(site.lab, SCENARIOS[name])))
    recorded = judged(kept.read(name))
    if recorded["refused"]:
        # What else the engine had looked at when it stopped is different each time.
        live["rows"] = [row for row in live["rows"] if row in recorded["rows"]]
        live["figures"] = recorded["figures"]
    assert live == recorded, f"record it again: python -m tests.fixtures.previews.record {name}"


@pytest.mark.exhaustive
def test_rules_keep_up_from_touching_anything(site: Site, tmp_path: Path) -> None:
    """All violations at once, and not one resource written, also without a preview before."""
    copy_project(site.lab, tmp_path)
    # Images of pickers, servers and weights Jobs are in other registries, and both models' weights come from outside.
    (tmp_path / "rules.lab.yaml").write_text(yaml.safe_dump({"sovereign": True, "registries": ["ghcr.io"]}))
    file = tmp_path / "Pulumi.lab.yaml"
    document = yaml.safe_load(session.stack_file(site.lab).read_text())
    document["config"]["inference-platform:site"]["gateway"]["replicas"] = 3
    file.write_text(yaml.safe_dump(document))
    done = session.run_pulumi(
        site.lab,
        "up",
        "--yes",
        "--skip-preview",
        "--stack",
        "lab",
        "--config-file",
        str(file),
        project=tmp_path,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "12 violations of the platform's rules, so nothing was touched" in output
    for model in ("glm-5-1", "qwen3-32b"):
        assert f"Deployment inference-models/{model}-epp: 'registry.k8s.io/" in output
    assert "Traceback" not in output
    assert plan(site)[1]["rows"] == [], "the site is as it was"
