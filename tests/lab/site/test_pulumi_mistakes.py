"""What an engineer reads who made a mistake: all that is wrong, where, and the fix; nothing is touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.paths import CHECKOUT
from tests.lab.site.cluster_objects import declared, inventory
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("opening 13")


@pytest.fixture
def pulumi(site: Site, tmp_path: Path) -> Pulumi:
    return Pulumi(site.lab, tmp_path)


def refused(pulumi: Pulumi, edit: Callable[[Document], None], command: str = "up") -> str:
    """The engine's errors for an edited site, which must leave the cluster and the state as they were."""
    objects, resources = inventory(pulumi.lab), pulumi.resources()
    confirmed = ("--yes", "--skip-preview") if command == "up" else ()
    done = pulumi(command, *confirmed, *pulumi.edited(edit), check=False)
    assert done.returncode != 0, done.stdout
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    assert "errored" in output
    assert pulumi.resources() == resources
    assert declared(inventory(pulumi.lab)) == declared(objects)
    return output


@pytest.mark.parametrize("command", ["preview", pytest.param("up", marks=pytest.mark.exhaustive)])
def test_all_mistakes_of_a_site_are_reported_with_file_and_key(pulumi: Pulumi, command: str) -> None:
    def edit(site: Document) -> None:
        site["models"]["glm-5-1"]["server"]["replica"] = 3
        site["models"]["qwen3-32b"]["server"]["replicas"] = 0
        site["tenants"]["acme"]["models"] = ["glm-5"]
        site["gateway"]["port"] = "eighty"
        del site["cluster"]

    output = refused(pulumi, edit, command)
    assert "error: Pulumi.lab.yaml: 5 errors in the site" in output
    for line in (
        "Pulumi.lab.yaml:models.glm-5-1.server.replica: unknown key; did you mean 'replicas'?",
        "Pulumi.lab.yaml:models.qwen3-32b.server.replicas: out of range; got 0; allowed: a whole number from 1 to",
        "Pulumi.lab.yaml:tenants.acme.models: names glm-5, models has glm-5-1, qwen3-32b; did you mean",
        "Pulumi.lab.yaml:gateway.port: not a whole number; got 'eighty'; allowed: a whole number from 1 to 65535",
        "Pulumi.lab.yaml:cluster: missing; allowed: a section with gpu, gpu_stack, kubeconfig",
    ):
        assert line in output


@pytest.mark.exhaustive
def test_models_that_do_not_fit_are_refused_with_the_fix(pulumi: Pulumi) -> None:
    def edit(site: Document) -> None:
        site["models"]["glm-5-1"]["server"]["gpus"] = 4

    output = refused(pulumi, edit)
    assert "Pulumi.lab.yaml:models.glm-5-1.server.gpus: zai-org/GLM-5.1-FP8 does not fit" in output
    assert "fix: give a replica 8 GPUs (TP8); 16 GPUs in all" in output


def test_definitions_that_are_missing_or_changed_are_refused(pulumi: Pulumi, tmp_path: Path) -> None:
    folder = tmp_path / "crds"
    shutil.copytree(CHECKOUT / ".lab" / "bundle" / "crds", folder)
    (folder / "envoy-gateway.json").unlink()
    with (folder / "gateway-api.json").open("a") as definitions:
        definitions.write("# fixed by hand\n")

    def edit(site: Document) -> None:
        site["crds"] = {"folder": str(folder)}

    output = refused(pulumi, edit)
    assert f"{folder}/envoy-gateway.json: missing" in output
    assert f"{folder}/gateway-api.json: sha256 is" in output
    assert "fix: python -m sitectl bundle" in output


@pytest.mark.exhaustive
def test_a_stack_file_without_a_site_is_refused(pulumi: Pulumi) -> None:
    output = refused(pulumi, Document.clear)
    assert "Pulumi.lab.yaml:cluster: missing; allowed: a section with gpu, gpu_stack, kubeconfig" in output
