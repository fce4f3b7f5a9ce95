"""Persistent volumes for claims of Longhorn's StorageClass: a folder of the lab in place of a replicated volume."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

from kubernetes import client

from lab.cluster.api import Manifest
from lab.cluster.parts import metadata_of, name_of, spec_of, status_of

PROVISIONER = "driver.longhorn.io"
STORAGE_CLASS = "longhorn"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
# Kubernetes' own name for it: holds a volume until its provisioner has done what the reclaim policy asks.
_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
_CLAIM_PROVISIONER = "volume.kubernetes.io/storage-provisioner"

log = logging.getLogger(__name__)


def storage_class() -> Manifest:
    """Longhorn's default class, by its own name and provisioner, so that claims need no other one in the lab."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {
                "storageclass.kubernetes.io/is-default-class": "true",
                "inference-lab/emulation": "served by the lab with folders, not by Longhorn",
            },
        },
        "provisioner": PROVISIONER,
        "allowVolumeExpansion": True,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def volume_manifest(claim: Any, reclaim_policy: str, folder: Path) -> Manifest:
    """The PersistentVolume for this claim, bound to it and to no other."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": folder.name,
            "finalizers": [_FINALIZER],
            "annotations": {
                _PROVISIONED_BY: PROVISIONER,
                "inference-lab/emulation": "a folder of the lab, not a Longhorn volume: no replicas, no size limit",
            },
        },
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "accessModes": claim.spec.access_modes,
            "volumeMode": "Filesystem",
            "storageClassName": claim.spec.storage_class_name,
            "persistentVolumeReclaimPolicy": reclaim_policy,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.metadata.namespace,
                "name": claim.metadata.name,
                "uid": claim.metadata.uid,
            },
            "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
        },
    }


class VolumeController:
    """Makes volumes for claims that wait for one, grows them, and removes those whose claim is gone."""

    def __init__(self, connection: client.ApiClient, folder: Path) -> None:
        self._core = client.CoreV1Api(connection)
        self._storage = client.StorageV1Api(connection)
        self._folder = folder

    def reconcile(self) -> None:
        """Bring all claims and volumes of the provisioner, and the folders, to what they should be."""
        volumes = {name_of(v): v for v in self._core.list_persistent_volume(_request_timeout=10).items}
        ours = {
            name: volume
            for name, volume in volumes.items()
            if (metadata_of(volume).annotations or {}).get(_PROVISIONED_BY) == PROVISIONER
        }
        claims = self._core.list_persistent_volume_claim_for_all_namespaces(_request_timeout=10).items
        for claim in claims:
            phase, bound = status_of(claim).phase, ours.get(spec_of(claim).volume_name or "")
            if phase == "Pending" and not spec_of(claim).volume_name:
                self._provision(claim, volumes)
            elif phase == "Bound" and bound is not None:
                self._grow(claim, bound)
        for volume in ours.values():
            wanted_gone = spec_of(volume).persistent_volume_reclaim_policy == "Delete"
            phase, deleting = status_of(volume).phase, metadata_of(volume).deletion_timestamp is not None
            if phase == "Released" and wanted_gone and not deleting:
                self._core.delete_persistent_volume(name_of(volume))
            elif phase != "Bound" and deleting:
                self._let_go(volume, drop_data=wanted_gone)

    def _provision(self, claim: Any, volumes: Container[str]) -> None:
        name = f"pvc-{claim.metadata.uid}"
        provisioner = (claim.metadata.annotations or {}).get(_CLAIM_PROVISIONER)
        if provisioner != PROVISIONER or name in volumes or claim.metadata.deletion_timestamp is not None:
            return
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        if claim.spec.volume_mode == "Block":
            log.error("claim %s asks for a block device, and the lab serves folders only", key)
            return
        with contextlib.suppress(_NoClassError):
            policy = self._reclaim_policy(claim.spec.storage_class_name)
            folder = self._folder / name
            folder.mkdir(parents=True, exist_ok=True)
            # As a new file system would be to the pod's user, root or not.
            folder.chmod(0o777)
            manifest = volume_manifest(claim, policy, folder)
            self._core.create_persistent_volume(client.V1PersistentVolume.model_validate(manifest))
            log.info("claim %s has %s", key, folder)

    def _reclaim_policy(self, storage_class_name: str) -> str:
        try:
            return str(self._storage.read_storage_class(storage_class_name).reclaim_policy)
        except client.ApiException as error:
            if error.status == 404:
                raise _NoClassError from None
            raise

    def _grow(self, claim: Any, volume: Any) -> None:
        """Report that the volume has the size that is asked for: a folder has no size of its own."""
        wanted = claim.spec.resources.requests["storage"]
        if wanted != volume.spec.capacity["storage"]:
            self._core.patch_persistent_volume(volume.metadata.name, {"spec": {"capacity": {"storage": wanted}}})
        if wanted != (claim.status.capacity or {}).get("storage"):
            self._core.patch_namespaced_persistent_volume_claim_status(
                claim.metadata.name, claim.metadata.namespace, {"status": {"capacity": {"storage": wanted}}}
            )

    def _let_go(self, volume: Any, *, drop_data: bool) -> None:
        if _FINALIZER not in (volume.metadata.finalizers or ()):
            return
        if drop_data:
            shutil.rmtree(self._folder / volume.metadata.name, ignore_errors=True)
        self._core.patch_persistent_volume(
            volume.metadata.name, {"metadata": {"$deleteFromPrimitiveList/finalizers": [_FINALIZER]}}
        )
        log.info("volume %s is gone, its data %s", volume.metadata.name, "too" if drop_data else "is kept")


class _NoClassError(Exception):
    """The StorageClass is not there (yet)."""
