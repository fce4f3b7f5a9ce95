"""Warnings, the third state: shown wherever a site is looked at, and they refuse nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ci import previews
from sitectl.change.previews_folder import reports
from sitectl.output.markdown import document
from sitectl.shell.errors import Exit
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run, stand_in_pulumi

KEY = "cluster.machines.nodes"
UNCERTAIN = "models.glm-5-1.slo: holds by the computed figures, but not at the slow end of their band: ITL p95 is "
# Within the band of glm-5-1's ITL p95, and below it.
WITHIN_MS, BELOW_MS = 40, 15
TWO_PLANES = "2 control planes (cp-1, cp-2) survive no more failures than 1: etcd needs more than half of them"


def tighten(file: Path, itl_p95_ms: int) -> None:
    """Another target of the site's first model."""
    before, key, after = file.read_text().partition("itl_p95_ms: 75}")
    assert key
    file.write_text(f"{before}itl_p95_ms: {itl_p95_ms}}}{after}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose site has two control planes and a tight target; `pulumi` prints a recording without a change."""
    made = make_checkout(tmp_path / "own", sites=("prod",))
    file = made / "Pulumi.prod.yaml"
    tighten(file, WITHIN_MS)
    without = "          cp-3: {role: controlplane, address: 10.5.0.13}\n"
    assert without in file.read_text()
    file.write_text(file.read_text().replace(without, ""))
    stand_in_pulumi(tmp_path, "no-change", monkeypatch)
    return made


def line_of(folder: Path) -> int:
    lines = (folder / "Pulumi.prod.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line == "        nodes:")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "proof", "rules", "plan"])
def test_each_command_shows_the_warning_with_its_line_and_ends_well(folder: Path, command: str) -> None:
    result = run(folder, command, "prod")
    assert result.status == Exit.OK, result.out
    words = " ".join(result.out.split())
    assert f"warning: Pulumi.prod.yaml:{line_of(folder)}:{KEY}: {TWO_PLANES} fix: have an odd number" in words
    data = run(folder, command, "prod", "--json").data
    if command == "plan":
        text, doubt, *_ = data["warnings"]
        assert text.startswith(f"Pulumi.prod.yaml:{line_of(folder)}:{KEY}: {TWO_PLANES}")
        assert f":{UNCERTAIN}" in doubt
    else:
        warning, doubt, *_ = data["prod"]["warnings"]
        assert (warning["key"], warning["line"], warning["what"]) == (KEY, line_of(folder), TWO_PLANES)
        assert f"{doubt['key']}: {doubt['what']}".startswith(UNCERTAIN)


def test_the_comment_of_ci_shows_it_although_nothing_changes(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert previews.main(["--project", str(folder), "--out", str(out)], {}) == Exit.OK
    text = document(reports(out))
    assert "**3 warnings: the site is valid, and this is not wise.**" in text
    assert UNCERTAIN in text
    assert TWO_PLANES in text


@pytest.mark.processes
def test_the_program_tells_the_engine(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; import pulumi\n"
        "pulumi.log.warn = lambda text, *_, **__: print('WARNED', text)\n"
        "from sitectl.offline.mocked_program import declared\n"
        "sys.path.insert(0, '.'); declared('prod', Path('document.json'))\n"
    )
    (folder / "document.json").write_text(json.dumps(yaml.safe_load((folder / "Pulumi.prod.yaml").read_text())))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert f"{KEY}: {TWO_PLANES}" in done.stdout
    assert f":{UNCERTAIN}" in done.stdout


def test_a_site_without_warnings_says_none(checkout_folder: Path) -> None:
    result = run(checkout_folder, "validate", "lab")
    assert "warning" not in result.out
    assert run(checkout_folder, "validate", "lab", "--json").data["lab"]["warnings"] == []


@pytest.mark.row("opening 1")
def test_a_model_that_hangs_on_its_speed_is_uncertain_and_no_failure(tmp_path: Path) -> None:
    own = make_checkout(tmp_path / "own", sites=("prod",))
    tighten(own / "Pulumi.prod.yaml", WITHIN_MS)
    result = run(own, "proof", "prod")
    assert result.status == Exit.OK
    first, lost, warning = result.out.splitlines()[:3]
    assert first == "site prod: 1 model holds, 1 uncertain, with room for all"
    assert lost == "  lost node: too few replicas of glm-5-1, qwen3-32b until others serve, as `placement` shows"
    assert warning.startswith("  warning: Pulumi.prod.yaml:")
    assert f":{UNCERTAIN}" in result.out
    assert "\nglm-5-1: uncertain. zai-org/GLM-5.1-FP8 on h200-sxm" in result.out
    data = run(own, "proof", "prod", "--json").data["prod"]
    assert (data["verdict"], data["holds"]) == ("uncertain", False)
    assert {name: model["verdict"] for name, model in data["models"].items()} == {
        "glm-5-1": "uncertain",
        "qwen3-32b": "holds",
    }
    span = data["models"]["glm-5-1"]["figures"]["itl_p95"]["span"]
    assert span["fast"] < data["models"]["glm-5-1"]["figures"]["itl_p95"]["value"] < WITHIN_MS < span["slow"]
    assert run(own, "validate", "prod").status == Exit.OK


@pytest.mark.slow
@pytest.mark.row("opening 1")
@pytest.mark.parametrize("command", ["validate", "proof", "rules"])
def test_a_target_beyond_the_band_is_a_failure(tmp_path: Path, command: str) -> None:
    folder = make_checkout(tmp_path / "own", sites=("prod",))
    tighten(folder / "Pulumi.prod.yaml", BELOW_MS)
    result = run(folder, command, "prod")
    assert result.status == Exit.REFUSED
    assert " does not keep its targets: ITL p95 is " in result.out + result.err
    if command == "proof":
        data = run(folder, "proof", "prod", "--json").data["prod"]
        assert (data["verdict"], data["holds"]) == ("fails", False)
