"""Longhorn on the disks that the machine configs name, and the storage classes that the platform uses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.network_policies import ANY_NAMESPACE, allow_ingress, peer
from components.scrape_target import NODE_LABEL, ScrapeTarget
from components.specs.longhorn import (
    DATABASE_COPIES,
    MINIMAL_AVAILABLE_PERCENT,
    OVER_PROVISIONING_PERCENT,
    DataEngine,
    LonghornSpec,
    database_class,
    scratch_class,
    scratch_copies,
)
from floor import namespaces, storage_nodes
from floor.stateful import STORAGE, Keeping
from floor.taints import Taint, tolerations

NAMESPACE = namespaces.STORAGE
_RELEASE = "longhorn"

_PROVISIONER = "driver.longhorn.io"
_METRICS_PORT, _NFS_PORT = 9500, 2049
_MANAGERS = {"app": "longhorn-manager"}
# Conversion, admission and recovery webhooks, which the API server and nodes call.
_WEBHOOK_PORTS = (9501, 9502, 9503)
_MANAGER = {"requests": {"cpu": "100m", "memory": "256Mi"}}
_STORED = "inference-platform/storage"
_PATIENCE_S = 900
# A controller of pods by group and kind, as Longhorn compares it with a pod's owner: that of a Deployment's pods.
_REPLICA_SETS = "apps/ReplicaSet"


def longhorn_values(
    spec: LonghornSpec, *, engine: DataEngine, taints: Iterable[Taint], selects_nodes: bool, keeping: Keeping
) -> dict[str, Any]:
    """Values of Longhorn's chart.

    engine: the one that the disks are for. taints: of the nodes with disks. selects_nodes: whether those have the
    label of nodes with disks; others lack the programs that Longhorn runs on its host, and its pods end there. keeping:
    whether it may be uninstalled, with every volume.
    """
    answered = tolerations(taints)
    nodes = {"nodeSelector": {storage_nodes.LABEL: storage_nodes.VALUE}} if selects_nodes else {}
    selector = {"systemManagedComponentsNodeSelector": f"{storage_nodes.LABEL}:{storage_nodes.VALUE}"}
    backup = {"backupTarget": spec.backup_target, "backupTargetCredentialSecret": spec.backup_credential_secret}
    return {
        # The platform's classes are declared beside it, one for each purpose.
        "persistence": {"defaultClass": False, "createStorageClass": False},
        "defaultSettings": {
            # Disks come from the nodes' annotation alone, never from a folder of the system disk.
            "createDefaultDiskLabeledNodes": True,
            "storageOverProvisioningPercentage": OVER_PROVISIONING_PERCENT,
            "storageMinimalAvailablePercentage": MINIMAL_AVAILABLE_PERCENT,
            # A disk of the annotation that reserves nothing gets this share of it instead, 30 by default.
            "storageReservedPercentageForDefaultDisk": 0,
            "replicaSoftAntiAffinity": False,
            "v1DataEngine": engine == "v1",
            "v2DataEngine": engine == "v2",
            # A lost node would else keep the one NFS server of a volume for up to 90 s, and its pods for longer.
            "rwxVolumeFastFailover": True,
            "nodeDownPodDeletionPolicy": "delete-both-statefulset-and-deployment-pod",
            # When a shared volume's server moves, as at a drain of its node, Longhorn deletes the pods that mount the
            # volume: all replicas of a model at once. Their mounts recover, as the server keeps its address. Pods of
            # StatefulSets, whose volumes are of one node, still start again after a volume's failure.
            "blacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly": _REPLICA_SETS,
            # A machine that is rolled comes back with its copies. So a drain need not move a last copy that is stopped,
            # as a database's is with its pod; policies that evict would wait for that one for ever, as its volume is
            # bound to the node. A last copy that runs holds every drain, so no volume of weights or scratch has one.
            "nodeDrainPolicy": "allow-if-replica-is-stopped",
            "taintToleration": "; ".join(f"{entry['key']}:{entry['effect']}" for entry in answered),
            # Both call the publisher's servers.
            "allowCollectingLonghornUsageMetrics": False,
            "upgradeChecker": False,
            "deletingConfirmationFlag": keeping == "disposable",
            **(selector if selects_nodes else {}),
        },
        "defaultBackupStore": {key: value for key, value in backup.items() if value is not None},
        "longhornManager": {"tolerations": answered, "resources": _MANAGER, **nodes},
        "longhornDriver": {"tolerations": answered, **nodes},
        # It has no login, and every pod that reaches it may delete volumes.
        "longhornUI": {"replicas": 0},
    }


def storage_classes(name: str, spec: LonghornSpec, engine: DataEngine) -> list[dict[str, Any]]:
    """One class for each purpose: `name` for weights, and beside it one for databases and one for scratch volumes.

    A database keeps its one copy on the node of its pod (strict-local), which engine v2 cannot do.
    """

    def stored(copies: int, locality: str = "disabled") -> dict[str, str]:
        return {"numberOfReplicas": str(copies), "dataLocality": locality}

    database = stored(DATABASE_COPIES[engine], "strict-local" if engine == "v1" else "disabled")
    return [
        _storage_class(name, engine, stored(spec.weight_replicas)),
        _storage_class(database_class(name), engine, database, retained=True),
        _storage_class(scratch_class(name), engine, stored(scratch_copies(spec.weight_replicas))),
    ]


def _storage_class(
    name: str, engine: DataEngine, parameters: Mapping[str, str], *, retained: bool = False
) -> dict[str, Any]:
    """A volume that is bound where its pod runs has its copy there."""
    local = parameters["dataLocality"] == "strict-local"
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": _PROVISIONER,
        "allowVolumeExpansion": True,
        "reclaimPolicy": "Retain" if retained else "Delete",
        "volumeBindingMode": "WaitForFirstConsumer" if local else "Immediate",
        # No nfsOptions: Longhorn's own end a read that finds no server, so no node hangs (docs/how-to/storage.md).
        # Longhorn reads text alone. 2,880 minutes: a copy of a node that was away for a weekend is used again.
        "parameters": {
            **parameters,
            "dataEngine": engine,
            "fsType": "ext4",
            "migratable": "false",
            "staleReplicaTimeout": "2880",
        },
    }


def network_policies() -> list[dict[str, Any]]:
    """What Longhorn's pods let in: each other, the API server's and nodes' calls, mounts, and scrapers.

    Nodes mount shared volumes over NFS from their own addresses, which no policy can name on every pod network; the
    port is open to pods too (decision 34).
    """
    outside = [*_WEBHOOK_PORTS, _NFS_PORT]
    return [
        allow_ingress("longhorn", NAMESPACE, {}, [([peer({})], []), ((), outside)]),
        allow_ingress(
            "longhorn-metrics",
            NAMESPACE,
            _MANAGERS,
            [([peer({}, ANY_NAMESPACE)], [_METRICS_PORT])],
        ),
    ]


def managed(nodes: int, installed: str) -> dict[str, Any]:
    """A mark on Longhorn's managers, written when one runs on each of so many nodes; Helm waits for none of them."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "longhorn-manager",
            "namespace": NAMESPACE,
            "annotations": {_STORED: installed, "pulumi.com/waitFor": f"jsonpath={{.status.numberReady}}={nodes}"},
        },
    }


def stored(node: str, disks: Sequence[str], installed: str) -> dict[str, Any]:
    """A mark on Longhorn's view of a node, written when it stores on each of these disks.

    Not the node's own condition: it is Schedulable also without any disk. installed: what must be there by then.
    """
    schedulable = [
        f"jsonpath={{.status.diskStatus['{disk}'].conditions[?(@.type=='Schedulable')].status}}=True" for disk in disks
    ]
    waits = json.dumps(["condition=Ready", *schedulable])
    return {
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Node",
        "metadata": {
            "name": node,
            "namespace": NAMESPACE,
            "annotations": {_STORED: installed, "pulumi.com/waitFor": waits},
        },
    }


def content(site: AddonSite) -> AddonContent:
    """Works when Longhorn can store on every node with disks, and its classes are there.

    Nothing uninstalls it as long as the site keeps its volumes.
    """
    spec, chart = site.spec(LonghornSpec), site.charts["longhorn"]
    values = longhorn_values(
        spec, engine=site.engine, taints=site.gpu_taints, selects_nodes=bool(site.disks), keeping=site.keeping
    )
    installed = f"{_RELEASE}-{chart.version}"
    marks = [("managed", managed(len(site.disks), installed))] if site.disks else []
    marks += [(f"stored-{node}", stored(node, disks, installed)) for node, disks in sorted(site.disks.items())]
    return AddonContent(
        releases=[AddonRelease(name=_RELEASE, chart=chart, values=values, holder=STORAGE, keeping=site.keeping)],
        network_policies=network_policies(),
        objects=[
            # Longhorn's object of a node is there once its manager runs; a mark that comes first would make an empty
            # one.
            *(
                AddonObject(
                    suffix=suffix,
                    body=body,
                    after=[] if suffix == "managed" else [_RELEASE, "managed"],
                    patience_s=_PATIENCE_S,
                    is_patch=True,
                )
                for suffix, body in marks
            ),
            *(
                AddonObject(suffix=f"class-{body['metadata']['name']}", body=body)
                for body in storage_classes(site.storage_class, spec, site.engine)
            ),
        ],
    )


LONGHORN = Addon(
    key="longhorn",
    switch="storage.system",
    on="longhorn",
    section="storage.longhorn",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="longhorn",
            release=_RELEASE,
            uninstalled="every volume of the cluster is deleted",
            upgraded="its managers restart; volumes that are attached stay so, and their engines are upgraded later",
        ),
    ),
    targets=(
        # Managers, one on each node with disks.
        ScrapeTarget(
            name="storage",
            job="storage",
            namespace=NAMESPACE,
            pods=_MANAGERS,
            port=_METRICS_PORT,
            labels=[NODE_LABEL],
            own_labels_win=True,
        ),
    ),
    component=AddonComponent(
        name="storage", resource_type="longhorn:Longhorn", pod_security="privileged", content=content, gives="hardware"
    ),
)
