"""Nodes that store are rolled one after the other, and a model keeps a replica: Longhorn is emulated.

The reference site's values and classes decide what it does (emulated_storage.py). Replicas are counted as they are
Ready; that clients get answers meanwhile is in site/test_talos_roll.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from kubernetes import client

from floor.taints import GPU_TAINT, tolerations
from lab.cluster import api
from lab.cluster.parts import metadata_of, name_of, spec_of, status_of
from lab.paths import Lab
from talos.secrets import variables
from tests.lab.cluster_by_hand import ByHand, bring_up_cluster
from tests.lab.emulated_storage import IDLE, IMAGE, SCRATCH, emulated_longhorn, storing
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.11", "000.20")

NODES = ["hgx-1", "hgx-2", "hgx-3"]
MODEL = "model"
WEIGHTS = "weights"
REPLICAS = 2
# What its values would be if the program left them out.
UNSPARING = {"blacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly": ""}


@pytest.fixture(scope="module")
def cluster(spare_lab: Lab) -> Lab:
    bring_up_cluster(spare_lab, hgx=len(NODES))
    return spare_lab


@pytest.fixture(scope="module", autouse=True)
def model(cluster: Lab) -> Iterator[None]:
    """Two replicas on nodes of their own, which mount one shared volume."""
    with storing(cluster, NODES), api.connect(cluster) as connection:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MODEL}}
        api.apply(connection, space, *_model())
        apps = client.AppsV1Api(connection)
        eventually(lambda: status_of(apps.read_namespaced_deployment(MODEL, MODEL)).ready_replicas == REPLICAS)
        yield


def _model() -> list[dict[str, Any]]:
    labels = {"matchLabels": {"app": MODEL}}
    apart = [{"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}]
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "longhorn"}
    mounts = [{"name": WEIGHTS, "mountPath": "/weights", "readOnly": True}]
    pod = {
        "tolerations": tolerations([GPU_TAINT]),
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
        "containers": [{"name": "engine", "image": IMAGE, "args": IDLE, "volumeMounts": mounts}],
        "volumes": [{"name": WEIGHTS, "persistentVolumeClaim": {"claimName": WEIGHTS}}],
    }
    template = {"metadata": {"labels": {"app": MODEL}}, "spec": pod}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": WEIGHTS, "namespace": MODEL},
            "spec": {**claim, "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": MODEL, "namespace": MODEL},
            "spec": {"replicas": REPLICAS, "selector": labels, "template": template},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": MODEL, "namespace": MODEL},
            "spec": {"maxUnavailable": 1, "selector": labels},
        },
    ]


def ready(core: client.CoreV1Api) -> list[str]:
    """Replicas that serve."""
    return [
        name_of(pod)
        for pod in core.list_namespaced_pod(MODEL).items
        if metadata_of(pod).deletion_timestamp is None
        and any(entry.type == "Ready" and entry.status == "True" for entry in status_of(pod).conditions or ())
    ]


@contextmanager
def counted(core: client.CoreV1Api) -> Iterator[set[int]]:
    """How many replicas served, as often as it was looked."""
    counts, ending = set[int](), threading.Event()

    def keep_counting() -> None:
        while not ending.wait(0.1):
            counts.add(len(ready(core)))

    thread = threading.Thread(target=keep_counting, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        ending.set()
        thread.join()


def roll(cluster: Lab, node: str) -> None:
    """A config for which the machine reboots, by the program's own command."""
    by_hand = ByHand(cluster, hgx=len(NODES))
    file = by_hand.folder / f"{node}.yaml"
    first, *others = yaml.safe_load_all(file.read_text())
    first["machine"]["udev"] = {"rules": ['SUBSYSTEM=="net"']}
    file.write_text(yaml.safe_dump_all([first, *others]))
    image = first["machine"]["install"]["image"]
    by_hand.talos("roll", node, "--image", image, "--config", str(file), "--drain-timeout", "120s")


def test_every_node_that_stores_is_rolled_and_the_model_serves(
    cluster: Lab, core: client.CoreV1Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume's server moves with its node, and no node is drained that may have a last copy."""
    monkeypatch.setenv(variables.KUBECONFIG, cluster.kubeconfig.read_text())
    with emulated_longhorn(cluster) as longhorn:
        with counted(core) as counts:
            for node in NODES:
                eventually(lambda: len(ready(core)) == REPLICAS)
                roll(cluster, node)
        assert WEIGHTS in longhorn.moved
        assert longhorn.restarted == []
        assert longhorn.cordoned == {node: [] for node in NODES}
        assert min(counts) == REPLICAS - 1
        eventually(lambda: len(core.list_namespaced_pod(SCRATCH).items) == 1)


@pytest.mark.exhaustive
def test_without_the_setting_a_server_that_moves_takes_every_replica(cluster: Lab, core: client.CoreV1Api) -> None:
    """What the emulation does to a site that does not exclude Deployments' pods."""
    replicas = eventually(lambda: len(ready(core)) == REPLICAS and ready(core))
    with emulated_longhorn(cluster, settings=UNSPARING) as longhorn:
        (volume,) = (volume for volume in longhorn.volumes.values() if volume.shared)
        core.delete_namespaced_pod(volume.server, "longhorn-system")
        eventually(lambda: set(longhorn.restarted) >= set(replicas))


@pytest.mark.exhaustive
def test_with_one_copy_of_a_volume_in_use_its_node_cannot_be_drained(cluster: Lab, core: client.CoreV1Api) -> None:
    """The pod that uses it runs elsewhere by then, and the copy with it."""
    with emulated_longhorn(cluster, scratch_copies=1) as longhorn:
        (volume,) = (volume for volume in longhorn.volumes.values() if not volume.shared)
        (node,) = volume.copies
        core.patch_node(node, {"spec": {"unschedulable": True}})
        (pod,) = core.list_namespaced_pod(SCRATCH).items
        if spec_of(pod).node_name == node:
            core.delete_namespaced_pod(name_of(pod), SCRATCH)
        eventually(lambda: "has no budget on another node" in longhorn.held.get(node, ""))
        core.patch_node(node, {"spec": {"unschedulable": False}})
