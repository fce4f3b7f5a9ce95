"""The annotated production site under the real engine: previewed from a machine that reaches nothing of it.

The lab lends its tools and its copies of the charts, and stubs stand for those that it has not; nothing is created,
and no server is called.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import session
from lab.paths import CHECKOUT, Lab
from stacks.facts import versions
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import plan_file
from tests.program_folders import FOLDERS
from tests.stub_charts import write_stub_charts

pytestmark = pytest.mark.row("C.05", "000.02")

SOURCES = ("Pulumi.yaml", "Pulumi.prod.yaml", "__main__.py", *FOLDERS)


@pytest.fixture(scope="module")
def preview(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lab, project = module_lab_of_tools, tmp_path_factory.mktemp("prod")
    for name in SOURCES:
        (project / name).symlink_to(CHECKOUT / name)
    for name in ("Pulumi.yaml", "Pulumi.prod.yaml"):
        # The engine writes its salt into the stack file.
        (project / name).unlink()
        shutil.copy(CHECKOUT / name, project / name)
    # Its own registry is not there, and neither is Cilium's manifest: a stub is in its place, and pinned.
    site = project / "Pulumi.prod.yaml"
    text = site.read_text()
    for own, here in (
        ("oci://registry.site.example/charts", "mirror"),
        ("folder: .bundle/crds", "folder: .lab/bundle/crds"),
    ):
        assert text.count(own) == 1
        text = text.replace(own, here)
    site.write_text(text)
    _pin_stub_manifest(project)
    (project / ".venv").symlink_to(sys.prefix)
    (project / ".lab").mkdir()
    (project / ".lab" / "bundle").symlink_to(lab.bundle)
    session.prepare(lab)
    shutil.copytree(lab.bundle / "charts", project / "mirror")
    write_stub_charts(project / "mirror", installed_charts(plan_file(CHECKOUT / "Pulumi.prod.yaml").site))
    (project / "state").mkdir()
    environment = {
        **session.environment(lab, {key: value for key, value in os.environ.items() if key != "PULUMI_STACK"}),
        "PULUMI_BACKEND_URL": f"file://{project / 'state'}",
    }
    environment.pop("PULUMI_STACK", None)
    environment.pop("PULUMI_OPTION_CONFIG_FILE", None)
    for command in (
        "pulumi stack init prod",
        "pulumi config set --secret registry-password none --stack prod",
        # No link but loopback: what the site names must not be asked from here.
        "unshare --net sh -c 'ip link set lo up && exec pulumi preview --stack prod --json'",
    ):
        done = subprocess.run(
            ["sh", "-c", command], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _pin_stub_manifest(project: Path) -> None:
    manifest = project / ".bundle" / "cilium" / "cilium.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("kind: ConfigMap\n")
    (project / "stacks").unlink()
    shutil.copytree(CHECKOUT / "stacks", project / "stacks")
    pins = project / "stacks" / "facts" / "versions.yaml"
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    pins.write_text(pins.read_text().replace(versions.load().cilium.manifest, digest))


def kinds(preview: dict[str, Any]) -> Counter[str]:
    return Counter(str(step["newState"]["type"]) for step in preview["steps"])


def test_everything_would_be_created(preview: dict[str, Any]) -> None:
    assert set(preview["changeSummary"]) == {"create"}
    assert preview["changeSummary"]["create"] > 80


def test_each_machine_is_installed_and_none_needs_to_answer(preview: dict[str, Any]) -> None:
    names = {step["newState"]["urn"].rpartition("::")[2] for step in preview["steps"]}
    machines = yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())["config"]["inference-platform:site"]
    nodes = machines["cluster"]["machines"]["nodes"]
    assert len(nodes) >= 7
    assert {f"machines-nodes-{name}-install" for name in nodes} <= names


def test_controllers_and_addons_come_by_chart(preview: dict[str, Any]) -> None:
    releases = {
        step["newState"]["inputs"]["name"]: step["newState"]["inputs"]
        for step in preview["steps"]
        if step["newState"]["type"] == "kubernetes:helm.sh/v3:Release"
    }
    # The version is the chart's own: the preview has looked into it.
    assert {name: release["version"] for name, release in releases.items()} == {
        "eg": "v1.9.1",
        "aieg": "v1.0.0",
        "gpu-operator": "v26.7.1",
        "longhorn": "1.12.1",
        "cert-manager": "v1.21.2",
        "node-exporter": "4.56.1",
        "cloudnative-pg": "0.29.0",
        "barman-cloud": "0.7.0",
    }


@pytest.mark.row("000.12")
def test_each_node_is_waited_for_until_it_offers_its_gpus_and_stores(preview: dict[str, Any]) -> None:
    """Also on a cluster that is not there yet."""
    made = kinds(preview)
    assert made["kubernetes:core/v1:NodePatch"] == 4
    assert made["kubernetes:nvidia.com/v1:ClusterPolicyPatch"] == 1
    assert made["kubernetes:longhorn.io/v1beta2:NodePatch"] == 4
    assert made["kubernetes:storage.k8s.io/v1:StorageClass"] == 3


def test_the_gateways_address_comes_from_the_sites_pool(preview: dict[str, Any]) -> None:
    made = kinds(preview)
    assert made["kubernetes:cilium.io/v2:CiliumLoadBalancerIPPool"] == 1
    assert made["kubernetes:cilium.io/v2alpha1:CiliumL2AnnouncementPolicy"] == 1


def test_definitions_come_from_the_bundle_alone(preview: dict[str, Any]) -> None:
    assert "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition" not in kinds(preview)
    brought = {
        step["newState"]["urn"].rpartition("::")[2]
        for step in preview["steps"]
        if step["newState"].get("parent", "").endswith("::crds")
    }
    assert brought == {f"crds-{Path(file).stem}" for file in versions.load().crds}


def test_models_run_on_vllm_with_gpus_of_whole_nodes(preview: dict[str, Any]) -> None:
    servers = {
        step["newState"]["inputs"]["metadata"]["name"]: step["newState"]["inputs"]["spec"]
        for step in preview["steps"]
        if step["newState"]["urn"].endswith("-server") and "Deployment" in step["newState"]["type"]
    }
    container = servers["glm-5-1"]["template"]["spec"]["containers"][0]
    assert container["image"].startswith("docker.io/vllm/vllm-openai:v")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert "--enable-chunked-prefill" in container["args"]
