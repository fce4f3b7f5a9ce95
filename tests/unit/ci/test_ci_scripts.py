"""The scripts that the jobs call, run on a repository as a job does."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import offline, previews
from sitectl.change.previews_folder import reports
from sitectl.output.markdown import document
from sitectl.shell.errors import Exit
from tests.fixtures.previews import kept
from tests.unit.sitectl.sites_to_work_on import PROGRAM, git, make_checkout, print_recording, recording

pytestmark = [pytest.mark.processes, pytest.mark.row("opening 3", "C.06")]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A commit with the site prod, and an edited file next to it."""
    folder = make_checkout(tmp_path_factory.mktemp("repository"), sites=("prod",), copied=PROGRAM)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")
    file = folder / "Pulumi.prod.yaml"
    edited = file.read_text().replace("          replicas: 4\n", "          replicas: 3\n")
    file.write_text(edited.replace("mtu: 9000", "mtu: 9100"))
    return folder


def test_the_offline_job_checks_and_compares(repository: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    words = ["--project", str(repository), "--out", str(tmp_path / "out"), "--base", "HEAD"]
    assert offline.main(words, {"GITHUB_STEP_SUMMARY": str(summary)}) == Exit.OK
    text = summary.read_text()
    assert "## validate: passed" in text and "## rules: passed" in text
    assert "4 \\-&gt; 3 replicas" in text
    assert "| `bonds.bond0.mtu` | `9000` | `9100` | live: " in text
    assert (tmp_path / "out" / "rendered" / "prod" / "inference-models").is_dir()
    assert (tmp_path / "out" / "rendered" / "prod" / "program" / "machines" / "hgx-1.yaml").is_file()


def test_the_offline_job_goes_on_after_a_failure_and_fails(repository: Path, tmp_path: Path) -> None:
    broken = repository / "Pulumi.oslo.yaml"
    broken.write_text("config: {'inference-platform:site': {name: '```</details>@all'}}\n")
    try:
        words = ["--project", str(repository), "--out", str(tmp_path)]
        assert offline.main(words, {}) == Exit.REFUSED
    finally:
        broken.unlink()
    summary = (tmp_path / "summary.md").read_text()
    assert "## validate: failed" in summary and "## rules: failed" in summary
    assert "cluster" in (tmp_path / "validate.txt").read_text()


def test_without_a_revision_to_compare_with_nothing_is_compared(repository: Path, tmp_path: Path) -> None:
    assert offline.main(["--project", str(repository), "--out", str(tmp_path)], {}) == Exit.OK
    assert not (tmp_path / "diff.txt").exists()


def engine(folder: Path, recording: str, *, status: int = 0) -> None:
    """A stand-in for `pulumi` on PATH that prints a recording, and notes its arguments and the token that it sees."""
    program = folder / "pulumi"
    lines = ["#!/bin/sh", f'echo "$@ token=${{GITHUB_TOKEN:-none}}" >> {folder}/asked']
    lines += [print_recording(recording), f"exit {status}", ""]
    program.write_text("\n".join(lines))
    program.chmod(0o755)


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "project", sites=("lab", "prod"))


def saved(folder: Path, site: str) -> Any:
    return json.loads((folder / f"{site}.json").read_text())


def test_every_site_is_previewed_and_saved(project: Path, own_path: Path, tmp_path: Path) -> None:
    engine(own_path, "replica-cut")
    assert previews.main(["--project", str(project), "--out", str(tmp_path / "out")], {}) == Exit.OK
    assert saved(tmp_path / "out", "lab")["changeSummary"] == kept.read("replica-cut")["changeSummary"]
    asked = (own_path / "asked").read_text().splitlines()
    assert asked == [f"preview --json --non-interactive --stack {site} token=none" for site in ("lab", "prod")]


@pytest.mark.row("opening 1")
def test_a_saved_preview_says_what_each_model_holds(project: Path, own_path: Path, tmp_path: Path) -> None:
    """The job that posts has another checkout, so the figures travel with the preview."""
    engine(own_path, "replica-cut")
    previews.main(["--project", str(project), "--out", str(tmp_path / "out"), "--site", "prod"], {})
    (report,) = reports(tmp_path / "out")
    blocks = [block.partition(": ")[0] for block in report.proofs]
    assert blocks[:4] == ["glm-5-1", "qwen3-32b", "placement", "storage"]
    assert {"limits", "database"} <= {*blocks}
    assert "2 x TP8 = 16 GPUs" in report.proofs[0]
    assert "cold start  1,380 s, of it 1,260 s reading" in report.proofs[0]
    assert "cold start  177 s, of it 57.2 s reading" in report.proofs[1]
    for block in report.proofs:
        assert block in document([report])


def test_refresh_looks_at_the_cluster(project: Path, own_path: Path, tmp_path: Path) -> None:
    engine(own_path, "no-change")
    words = ["--project", str(project), "--out", str(tmp_path / "out"), "--refresh", "--site", "lab"]
    assert previews.main(words, {}) == Exit.OK
    assert "--stack lab --refresh" in (own_path / "asked").read_text()


def test_a_site_that_cannot_be_previewed_is_saved_as_that(
    project: Path, tmp_path: Path, own_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(own_path))
    assert previews.main(["--project", str(project), "--out", str(tmp_path / "out")], {}) == Exit.UNABLE
    assert "there is no pulumi on PATH" in saved(tmp_path / "out", "lab")["diagnostics"][0]["message"]


def test_what_the_engine_refuses_is_a_preview_all_the_same(project: Path, tmp_path: Path, own_path: Path) -> None:
    engine(own_path, "model-swapped", status=255)
    assert previews.main(["--project", str(project), "--out", str(tmp_path / "out")], {}) == Exit.OK
    assert saved(tmp_path / "out", "lab")["diagnostics"]


def test_outputs_are_not_handed_on() -> None:
    """A stack's outputs hold what only `up` and its readers need."""
    preview = {"steps": [{"op": "update", "oldState": {"inputs": {"a": 1}, "outputs": {"b": 2}}}], "config": {}}
    kept = previews.without_outputs(preview)
    assert kept == {"steps": [{"op": "update", "oldState": {"inputs": {"a": 1}}}], "config": {}}


def on_a_cluster_that_exists(project: Path, kubeconfig: str) -> None:
    """Let the project's prod name that file in place of machines of its own."""
    file = project / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"]["inference-platform:site"] |= {"cluster": {"kubeconfig": kubeconfig}, "addresses": {}}
    file.write_text(yaml.safe_dump(document))


def test_credentials_go_to_where_the_site_says_for_us_alone(project: Path, own_path: Path, tmp_path: Path) -> None:
    engine(own_path, "no-change")
    on_a_cluster_that_exists(project, "kubeconfig.prod")
    given = {previews.VARIABLE: json.dumps({"prod": "text"})}
    assert previews.main(["--project", str(project), "--out", str(tmp_path / "out")], given) == Exit.OK
    written = project / "kubeconfig.prod"
    assert written.read_text() == "text"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["../outside", "/etc/kubeconfig", "__main__.py"])
def test_credentials_go_nowhere_else(project: Path, own_path: Path, tmp_path: Path, path: str) -> None:
    """The path comes out of the change."""
    engine(own_path, "no-change")
    on_a_cluster_that_exists(project, path)
    before = (project / "__main__.py").read_text()
    given = {previews.VARIABLE: json.dumps({"prod": "very-secret"})}
    assert previews.main(["--project", str(project), "--out", str(tmp_path / "out")], given) == Exit.UNABLE
    message = saved(tmp_path / "out", "prod")["diagnostics"][0]["message"]
    assert "credentials are not written" in message
    assert "very-secret" not in message
    assert (project / "__main__.py").read_text() == before
    assert not (project.parent / "outside").exists()


def test_credentials_of_a_cluster_out_of_machines_are_in_its_state(
    project: Path, own_path: Path, tmp_path: Path
) -> None:
    engine(own_path, "no-change")
    given = {previews.VARIABLE: json.dumps({"prod": "very-secret"})}
    assert previews.main(["--project", str(project), "--out", str(tmp_path / "out")], given) == Exit.UNABLE
    message = saved(tmp_path / "out", "prod")["diagnostics"][0]["message"]
    assert "SITE_KUBECONFIGS has a kubeconfig for it" in message
    assert "very-secret" not in message


def test_credentials_that_are_no_json_are_named(project: Path, own_path: Path, tmp_path: Path) -> None:
    engine(own_path, "no-change")
    assert (
        previews.main(["--project", str(project), "--out", str(tmp_path / "out")], {previews.VARIABLE: "apiVersion"})
        == 3
    )
    assert "is not JSON" in saved(tmp_path / "out", "lab")["diagnostics"][0]["message"]


def test_a_preview_under_another_sites_name_is_reported_as_a_failure(tmp_path: Path) -> None:
    (tmp_path / "prod.json").write_text(recording("replica-cut", "lab"))
    (report,) = reports(tmp_path)
    assert report.rows == []
    assert "is a preview of another stack than prod" in report.errors[0]
