"""Fields that Kubernetes never changes: an edit of the site's file gives such an object another name.

Under its old name the official provider's preview fails: it applies the new object over the old one, and tries another
name only where the API server answers `field is immutable` (pulumi-kubernetes, provider/pkg/await/await.go).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from stacks.plan.models import MODELS_NAMESPACE
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.19", "C.06", "opening 3")

# Kinds whose refusals have other words -> what of them is never changed.
FIXED = {
    "PersistentVolumeClaim": ("accessModes", "selector", "storageClassName", "volumeName"),
    "PersistentVolume": ("csi", "hostPath", "local", "nfs", "nodeAffinity"),
    "StatefulSet": ("podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates"),
    "Service": ("clusterIP", "loadBalancerClass"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
}
_DISKS = "cluster.machines.roles.hgx.volumes"
ELSEWHERE = {**ON_NODES, _DISKS: {"other": ON_NODES[_DISKS]["weights"]}, "storage.weights.node_path": "/var/mnt/other"}
Objects = dict[tuple[str, str, str], Any]


def declared(change: dict[str, Any], folder: Path) -> tuple[Objects, dict[str, Any]]:
    """Objects by kind, namespace and name, and what the engine gets for each resource."""
    folder.mkdir()
    recorder = Recorder()
    site = plan_values(changed(copy.deepcopy(prod()), change), "site.yaml").site
    _, requests = requested(site, folder, recorder)
    bodies = [made.inputs for made in recorder.resources.values() if "metadata" in made.inputs]
    return {
        (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]): body
        for body in bodies
        if "kind" in body
    }, requests


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """Objects of the site before an edit."""
    return declared({}, tmp_path_factory.mktemp("reference") / "site")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"storage.storage_class": "fast"}),
        ({}, {"storage.longhorn.weight_replicas": 1, "storage.weights.revisions": 1}),
        ({}, ON_NODES),
        (ON_NODES, ELSEWHERE),
        ({}, {"monitoring.storage_class": "fast"}),
    ],
    ids=["class", "copies", "place", "folder", "monitoring"],
)
def test_no_edit_changes_what_a_preview_cannot_replace(
    reference: Objects, before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    old = declared(before, tmp_path / "before")[0] if before else reference
    new, _ = declared(after, tmp_path / "after")
    assert old != new
    wrong = [
        f"{'/'.join(key)}: {field}"
        for key in old.keys() & new.keys()
        for field in FIXED.get(key[0], ())
        if old[key].get("spec", old[key]).get(field) != new[key].get("spec", new[key]).get(field)
    ]
    assert wrong == []


@pytest.mark.slow
def test_another_class_is_another_volume_that_is_filled_before_servers_move_to_it(tmp_path: Path) -> None:
    old, before = declared({}, tmp_path / "before")
    new, after = declared({"storage.storage_class": "fast"}, tmp_path / "after")
    # The engine replaces one resource, whose protection it therefore asks for.
    assert before["glm-5-1-weights"].protect and after["glm-5-1-weights"].protect
    for model in ("glm-5-1", "qwen3-32b"):
        was, now = f"{model}-weights-longhorn", f"{model}-weights-fast"
        assert ("PersistentVolumeClaim", MODELS_NAMESPACE, was) in old
        assert new["PersistentVolumeClaim", MODELS_NAMESPACE, now]["spec"]["storageClassName"] == "fast"
        assert ("PersistentVolumeClaim", MODELS_NAMESPACE, was) not in new
        written = [body for (kind, _, name), body in new.items() if kind == "Job" and name.startswith(f"{model}-")]
        pods = [body["spec"]["template"]["spec"] for body in (new["Deployment", MODELS_NAMESPACE, model], *written)]
        mounted = [volume for pod in pods for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        assert [volume["persistentVolumeClaim"]["claimName"] for volume in mounted] == [now] * 3
        needs = {urn.rpartition("::")[2] for urn in after[f"{model}-server"].dependencies}
        assert {f"{model}-weights", f"{model}-bring"} <= needs
