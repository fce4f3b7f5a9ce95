"""`sitectl upgrade-path --live` on the running platform: what runs, steps from there, and a killed helm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import session
from lab.paths import CHECKOUT
from stacks.facts import versions
from stacks.plan import conflicts
from stacks.plan.site_plan import plan_file
from stacks.plan.upgrades import pinned, steps_from
from tests.lab.site.cluster_objects import declared, inventory, kubectl
from tests.lab.site.project_copies import copy_project
from tests.lab.site.pulumi_runs import SITE
from tests.lab.site.replicas import until
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("opening 7")

CONTROLLERS, RELEASE = "envoy-gateway-system", "eg"
# A part of Talos's image, which no object of the cluster states.
DRIVERS = "nvidia_"


def asked(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sitectl", "upgrade-path", "lab", "--live", *words],
        cwd=CHECKOUT,
        env=session.environment(site.lab),
        capture_output=True,
        text=True,
        check=False,
    )


def record(site: Site) -> dict[str, Any]:
    done = asked(site, "--json")
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_what_runs_is_what_is_pinned(site: Site) -> None:
    before = declared(inventory(site.lab))
    wanted = conflicts.facts(versions.load(), plan_file(session.stack_file(site.lab)).site)
    shown = record(site)
    assert shown["steps"] == []
    stated = {fact for fact in pinned(wanted) if not fact.startswith(DRIVERS)}
    assert stated <= shown["runs"].keys()
    assert {fact: list(shown["runs"][fact]) for fact in stated} == {fact: [wanted[fact]] for fact in stated}
    assert shown["runs"]["talos"].keys() == {versions.load().talos.removeprefix("v")}
    assert {release["release"]: release["status"] for release in shown["releases"]} == {
        f"{CONTROLLERS}/{RELEASE}": "deployed",
        "envoy-ai-gateway-system/aieg": "deployed",
    }
    assert declared(inventory(site.lab)) == before, "it only reads"


def test_steps_begin_at_what_runs(site: Site) -> None:
    """From the lab as it is to later patch releases of what it has."""
    pins = versions.load()
    later = pins.model_copy(
        update={
            "kubernetes": "v1.36.9",
            "images": pins.images.model_copy(update={"endpoint_picker": pins.images.endpoint_picker + "1"}),
        }
    )
    runs = {fact: next(iter(places)) for fact, places in record(site)["runs"].items()}
    steps, problems = steps_from(plan_file(session.stack_file(site.lab)).site, runs, later)
    assert problems == []
    kubernetes = pins.kubernetes.removeprefix("v")
    assert [step.changes for step in steps] == [
        {"kubernetes": (kubernetes, "1.36.9"), "kubelet": (kubernetes, "1.36.9")},
        {"picker": (runs["picker"], f"{runs['picker']}1")},
    ]


def kill_helm_in_an_upgrade(site: Site) -> None:
    """The release as a helm leaves it that is killed at work: its next revision is pending for good."""
    before = max(revisions(site))
    chart = next(Path(site.lab.bundle / "charts").glob("gateway-helm-*.tgz"))
    command = ["helm", "upgrade", RELEASE, str(chart), "--namespace", CONTROLLERS, "--reuse-values", "--skip-crds"]
    helm = subprocess.Popen(
        command, env=session.environment(site.lab), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: max(revisions(site)) > before, what="the upgrade has begun")
    finally:
        helm.kill()
        helm.wait()


def revisions(site: Site) -> dict[int, str]:
    """Revision -> status."""
    listed = kubectl(site.lab, "get", "secrets", "-n", CONTROLLERS, "-l", f"owner=helm,name={RELEASE}", "-o", "json")
    labels = [secret["metadata"]["labels"] for secret in json.loads(listed)["items"]]
    return {int(label["version"]): label["status"] for label in labels}


@pytest.mark.exhaustive
def test_a_release_that_a_killed_helm_left_is_reported_with_the_way_back(site: Site) -> None:
    kill_helm_in_an_upgrade(site)
    refused = asked(site)
    assert refused.returncode == 1, refused.stdout
    pending = max(revisions(site))
    assert revisions(site)[pending] == "pending-upgrade"
    assert f"{CONTROLLERS}/{RELEASE}: the Helm release of gateway-helm" in refused.stderr
    assert f"is pending-upgrade; got revision {pending}; last deployed: " in refused.stderr
    fix = f"helm rollback {RELEASE} {pending - 1} --namespace {CONTROLLERS}"
    assert fix in refused.stderr
    subprocess.run(fix.split(), env=session.environment(site.lab), capture_output=True, check=True)
    assert record(site)["steps"] == []
    assert asked(site, "--quiet").stdout.startswith("lab: no step")


def test_a_cluster_that_does_not_answer_is_one_error(site: Site, tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    document = yaml.safe_load(session.stack_file(site.lab).read_text())
    document["config"][SITE]["cluster"] = {"kubeconfig": "kubeconfig.yaml"}
    (project / "Pulumi.lab.yaml").write_text(yaml.safe_dump(document))
    cluster = {"server": f"https://{site.lab.network.load_balancers.broadcast_address}:6443"}
    (project / "kubeconfig.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "gone", "cluster": cluster}],
                "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "gone"}}],
                "users": [{"name": "gone", "user": {"token": "of-no-user"}}],
                "current-context": "gone",
            }
        )
    )
    done = asked(site, "--project", str(project), "--quiet")
    assert done.returncode == 3, done.stdout
    assert done.stderr.count("error:") == 1, done.stderr
    assert "the cluster of lab does not answer" in done.stderr
