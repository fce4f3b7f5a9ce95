"""`sitectl drift` on the live platform: what others have set is named with its manager, and taken back as printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import session
from lab.paths import CHECKOUT
from tests.lab.site.cluster_objects import declared, inventory, kubectl
from tests.lab.site.pulumi_runs import Pulumi
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("opening 13", "C.06")

MODELS, GATEWAY = "inference-models", "inference-gateway"
PICKER = "qwen3-32b-epp"


def drift(site: Site) -> tuple[int, list[dict[str, Any]]]:
    """Exit status, and what others have set."""
    done = subprocess.run(
        [sys.executable, "-m", "sitectl", "drift", "--site", "lab", "--json"],
        cwd=CHECKOUT,
        env=session.environment(site.lab),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    foreign: list[dict[str, Any]] = json.loads(done.stdout)["lab"]["foreign"]
    return done.returncode, foreign


def follow(site: Site, command: str) -> None:
    """Run a command as it was printed; pulumi would ask."""
    asked = " --yes --skip-preview" if command.startswith("pulumi ") else ""
    line = ["bash", "-c", f"{command}{asked}"]
    subprocess.run(line, cwd=CHECKOUT, env=session.environment(site.lab), capture_output=True, check=True)


@pytest.mark.exhaustive
def test_what_others_have_set_is_named_and_taken_back(site: Site, tmp_path: Path) -> None:
    before = declared(inventory(site.lab))
    assert drift(site) == (0, []), "what controllers write is no drift"

    limit = json.dumps({"spec": {"revisionHistoryLimit": 3}})
    kubectl(site.lab, "set", "env", f"deployment/{PICKER}", "-n", MODELS, "DEBUG=1")
    kubectl(site.lab, "patch", f"deployment/{PICKER}", "-n", MODELS, "--type=merge", "-p", limit)
    kubectl(site.lab, "annotate", "securitypolicy/tenants", "-n", GATEWAY, "note=mine")
    # An object that is not ready is taken up again, whether or not anything has changed.
    kubectl(site.lab, "rollout", "status", f"deployment/{PICKER}", "-n", MODELS, "--timeout=120s")
    Pulumi(site.lab, tmp_path)("preview", "--refresh", "--expect-no-changes")
    kubectl(site.lab, "scale", f"deployment/{PICKER}", "--replicas=2", "-n", MODELS)

    status, foreign = drift(site)
    assert status == 1
    assert {entry["resource"]: {field["path"]: field["manager"] for field in entry["fields"]} for entry in foreign} == {
        f"Deployment {MODELS}/{PICKER}": {
            "spec.replicas": "kubectl",
            "spec.revisionHistoryLimit": "kubectl-patch",
            "spec.template.spec.containers[epp].env[DEBUG]": "kubectl-set",
        },
        f"SecurityPolicy {GATEWAY}/tenants": {"metadata.annotations.note": "kubectl-annotate"},
    }

    take_back(site, foreign)
    assert declared(inventory(site.lab)) == before


@pytest.mark.exhaustive
@pytest.mark.row("000.30")
def test_definitions_that_others_change_or_delete_are_named_and_taken_back(site: Site, tmp_path: Path) -> None:
    """Whether or not the site has objects of their kinds."""
    changed, deleted = "tcproutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io"
    names = json.dumps({"spec": {"names": {"shortNames": ["mine"]}}})
    kubectl(site.lab, "patch", f"crd/{changed}", "--type=merge", "-p", names)
    kubectl(site.lab, "delete", f"crd/{deleted}")
    status, foreign = drift(site)
    assert status == 1
    warned = Pulumi(site.lab, tmp_path)("preview").stdout
    assert f"the cluster lacks 1 definition, {deleted} first" in warned
    assert {entry["resource"]: [field["path"] for field in entry["fields"]] for entry in foreign} == {
        f"CustomResourceDefinition {changed}": ["spec.names.shortNames"],
        f"CustomResourceDefinition {deleted}": ["metadata"],
    }
    take_back(site, foreign)
    kubectl(site.lab, "get", f"crd/{deleted}")


def take_back(site: Site, foreign: list[dict[str, Any]]) -> None:
    """By the commands that are printed."""
    for entry in foreign:
        for command in entry["take_back"]:
            follow(site, command)
    assert drift(site) == (0, [])
