"""The checked-in program under the platform's rules, on the real engine: previews that pass and previews that do not.

Needs the built or an official `pulumi`, but no cluster: what is previewed is a first `up` to one that does not answer.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import session
from lab.paths import CHECKOUT, Lab
from tests.fixtures.previews.record import copy_project
from tests.lab.plain_site import make_plain

pytestmark = pytest.mark.row("opening 15")

SITE = "inference-platform:site"
SOVEREIGN: dict[str, Any] = {"sovereign": True, "registries": ["ghcr.io"]}
PICKERS = [f"Deployment inference-models/{model}-epp" for model in ("glm-5-1", "qwen3-32b")]


def waived(expires: str) -> dict[str, Any]:
    held = {"rule": "sovereign-registries", "reason": "the mirror is being filled", "expires": expires}
    return {**SOVEREIGN, "waivers": [{**held, "resource": resource} for resource in PICKERS]}


@pytest.fixture
def lab(lab_of_tools: Lab) -> Lab:
    return lab_of_tools


@pytest.fixture
def project(tmp_path: Path, lab: Lab) -> Path:
    """The program with the lab's models and tenants, on an external cluster that is out of reach."""
    folder = tmp_path / "project"
    folder.mkdir()
    copy_project(lab, folder)
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "none",
        "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        "users": [{"name": "none", "user": {"token": "none"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    document = yaml.safe_load((CHECKOUT / "Pulumi.lab.yaml").read_text())
    site = document["config"][SITE]
    site["cluster"] = {"kubeconfig": str(folder / "kubeconfig")}
    site["crds"] = {"owner": "external"}
    site["gateway"]["controllers"] = "external"
    # Without the Jobs that bring weights and what measures the site, pickers alone break the rule.
    make_plain(document)
    del site["storage"]["weights"]
    (folder / "Pulumi.lab.yaml").write_text(yaml.safe_dump(document))
    return folder


def pulumi(lab: Lab, project: Path, rules: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "rules.lab.yaml").write_text(rules)
    file = str(project / "Pulumi.lab.yaml")
    return session.run_pulumi(lab, *arguments, "--stack", "lab", "--config-file", file, project=project, check=False)


@pytest.mark.parametrize("arguments", [["preview"], ["up", "--yes", "--skip-preview"]], ids=lambda words: words[0])
def test_a_broken_rule_is_one_error_and_nothing_is_registered(lab: Lab, project: Path, arguments: list[str]) -> None:
    done = pulumi(lab, project, yaml.safe_dump(SOVEREIGN), *arguments)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    diagnostics = output.partition("Diagnostics:")[2]
    assert diagnostics.count("error: lab: 2 violations of the platform's rules, so nothing was touched") == 1
    for resource in PICKERS:
        assert diagnostics.count(f"{resource}: 'registry.k8s.io/") == 1
    assert "in rules.lab.yaml" in diagnostics
    assert "Traceback" not in output
    assert "never retrieved" not in output
    assert "kubernetes:" not in output.partition("Diagnostics:")[0].replace("pulumi-resource-kubernetes", "")
    state = "".join(path.read_text() for path in lab.pulumi.rglob("lab.json"))
    assert "kubernetes:" not in state


def test_a_waiver_lets_the_preview_through(lab: Lab, project: Path) -> None:
    done = pulumi(lab, project, yaml.safe_dump(waived("2999-01-01")), "preview")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kubernetes:apps/v1:Deployment glm-5-1-server create" in done.stdout


def test_an_expired_waiver_and_a_wrong_file_stop_it(lab: Lab, project: Path) -> None:
    done = pulumi(lab, project, yaml.safe_dump(waived("2026-01-01")), "preview")
    assert done.returncode != 0
    assert "lab: 4 violations of the platform's rules" in done.stdout
    assert f"{PICKERS[0]}: its waiver expired on 2026-01-01 (reason: the mirror is being filled)" in done.stdout
    done = pulumi(lab, project, "sovereing: true\nwaivers: 3\n", "preview")
    assert done.returncode != 0
    assert "rules.lab.yaml: 2 errors in the file" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
