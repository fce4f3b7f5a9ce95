from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from kubernetes import client

from lab.cluster import volumes
from lab.cluster.volumes import PROVISIONER, VolumeController

FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"


class FakeCluster:
    """Claims, volumes and one class, with the calls that the controller makes."""

    def __init__(self, claims: list[Any], volumes: list[Any], *, has_class: bool = True) -> None:
        self.claims, self.volumes, self.has_class = claims, volumes, has_class
        self.created: list[Any] = []
        self.deleted: list[str] = []
        self.patched: dict[str, Any] = {}
        self.grown: dict[str, Any] = {}

    def list_persistent_volume(self, **_: Any) -> Any:
        return SimpleNamespace(items=self.volumes)

    def list_persistent_volume_claim_for_all_namespaces(self, **_: Any) -> Any:
        return SimpleNamespace(items=self.claims)

    def read_storage_class(self, name: str) -> Any:
        assert name == "longhorn"
        if not self.has_class:
            raise client.ApiException(status=404)
        return SimpleNamespace(reclaim_policy="Retain")

    def create_persistent_volume(self, body: client.V1PersistentVolume) -> None:
        self.created.append(body)

    def delete_persistent_volume(self, name: str) -> None:
        self.deleted.append(name)

    def patch_persistent_volume(self, name: str, body: Any) -> None:
        self.patched[name] = body

    def patch_namespaced_persistent_volume_claim_status(self, name: str, namespace: str, body: Any) -> None:
        self.grown[f"{namespace}/{name}"] = body


def claim(
    phase: str = "Pending", *, size: str = "1Gi", volume: str | None = None, provisioner: str = PROVISIONER
) -> Any:
    return client.V1PersistentVolumeClaim(
        metadata=client.V1ObjectMeta(
            name="data",
            namespace="team",
            uid="u1",
            annotations={"volume.kubernetes.io/storage-provisioner": provisioner},
        ),
        spec=client.V1PersistentVolumeClaimSpec(
            access_modes=["ReadWriteMany"],
            storage_class_name="longhorn",
            volume_name=volume,
            resources=client.V1VolumeResourceRequirements(requests={"storage": size}),
        ),
        status=client.V1PersistentVolumeClaimStatus(phase=phase, capacity={"storage": "1Gi"} if volume else None),
    )


def volume(phase: str, *, policy: str = "Delete", deleting: bool = False, provisioner: str = PROVISIONER) -> Any:
    return client.V1PersistentVolume(
        metadata=client.V1ObjectMeta(
            name="pvc-u1",
            annotations={"pv.kubernetes.io/provisioned-by": provisioner},
            finalizers=[FINALIZER],
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
        ),
        spec=client.V1PersistentVolumeSpec(capacity={"storage": "1Gi"}, persistent_volume_reclaim_policy=policy),
        status=client.V1PersistentVolumeStatus(phase=phase),
    )


def reconcile(cluster: FakeCluster, folder: Path) -> None:
    controller = VolumeController(client.ApiClient(), folder)
    with patch.multiple(controller, _core=cluster, _storage=cluster):
        controller.reconcile()


def test_waiting_claim_gets_a_volume_bound_to_it(tmp_path: Path) -> None:
    cluster = FakeCluster([claim()], [])
    reconcile(cluster, tmp_path)
    (made,) = cluster.created
    assert made.spec.claim_ref.uid == "u1"
    assert made.spec.persistent_volume_reclaim_policy == "Retain"
    assert made.spec.host_path.path == str(tmp_path / "pvc-u1")
    assert "not a Longhorn volume" in made.metadata.annotations["inference-lab/emulation"]
    assert (tmp_path / "pvc-u1").stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize(
    "cluster",
    [
        FakeCluster([claim(provisioner="example.com/other")], []),
        FakeCluster([claim()], [volume("Available")]),
        FakeCluster([claim()], [], has_class=False),
        FakeCluster([claim("Bound", volume="pvc-u1")], [volume("Bound")]),
    ],
    ids=["another provisioner", "volume is there", "no class yet", "bound"],
)
def test_no_volume_is_made(cluster: FakeCluster, tmp_path: Path) -> None:
    reconcile(cluster, tmp_path)
    assert cluster.created == []


def test_released_volume_is_deleted_only_where_its_policy_says_so(tmp_path: Path) -> None:
    deleted = FakeCluster([], [volume("Released")])
    reconcile(deleted, tmp_path)
    assert deleted.deleted == ["pvc-u1"]
    retained = FakeCluster([], [volume("Released", policy="Retain")])
    reconcile(retained, tmp_path)
    assert retained.deleted == []


@pytest.mark.parametrize(("policy", "is_kept"), [("Delete", False), ("Retain", True)])
def test_data_goes_before_the_volume_is_let_go(tmp_path: Path, policy: str, is_kept: bool) -> None:
    (tmp_path / "pvc-u1").mkdir()
    cluster = FakeCluster([], [volume("Released", policy=policy, deleting=True)])
    reconcile(cluster, tmp_path)
    assert (tmp_path / "pvc-u1").exists() == is_kept
    assert cluster.patched == {"pvc-u1": {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}}


@pytest.mark.parametrize(
    "kept", [volume("Bound", deleting=True), volume("Released", deleting=True, provisioner="example.com/other")]
)
def test_data_in_use_or_of_others_is_not_touched(tmp_path: Path, kept: Any) -> None:
    (tmp_path / "pvc-u1").mkdir()
    cluster = FakeCluster([], [kept])
    reconcile(cluster, tmp_path)
    assert (tmp_path / "pvc-u1").exists()
    assert cluster.patched == {}


@pytest.mark.parametrize(("phase", "deleting"), [("Available", False), ("Released", False), ("Released", True)])
def test_a_volume_that_the_program_made_is_its_own(tmp_path: Path, phase: str, deleting: bool) -> None:
    """A folder on each node: no provisioner made it, and its claim names it."""
    made = volume(phase, deleting=deleting)
    made.metadata.annotations = None
    named = claim(volume="pvc-u1")
    named.metadata.annotations = {}
    cluster = FakeCluster([named], [made])
    reconcile(cluster, tmp_path)
    assert (cluster.created, cluster.deleted, cluster.patched, cluster.grown) == ([], [], {}, {})


def test_larger_claim_is_granted(tmp_path: Path) -> None:
    cluster = FakeCluster([claim("Bound", size="2Gi", volume="pvc-u1")], [volume("Bound")])
    reconcile(cluster, tmp_path)
    assert cluster.patched["pvc-u1"] == {"spec": {"capacity": {"storage": "2Gi"}}}
    assert cluster.grown["team/data"] == {"status": {"capacity": {"storage": "2Gi"}}}


def test_storage_class_says_that_the_lab_serves_it() -> None:
    made = volumes.storage_class()
    assert made["provisioner"] == "driver.longhorn.io"
    assert "not by Longhorn" in made["metadata"]["annotations"]["inference-lab/emulation"]
