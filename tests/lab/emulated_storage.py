"""An emulated Longhorn beside a lab's cluster, with the values and classes that the program gives the reference site's.

The lab's volumes are folders, so nothing of it is in the way of data: what it does are its servers, budgets and
restarts (lab/cluster/emulated_longhorn.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import yaml
from kubernetes import client

from components.addons.longhorn import storage_classes
from floor import namespaces, storage_nodes
from floor.taints import GPU_TAINT, tolerations
from lab.cluster import api
from lab.cluster.emulated_longhorn_manager import EmulatedLonghorn, running
from lab.paths import CHECKOUT, Lab
from lab.runner.images import PYTHON_REPOSITORY
from stacks.plan.site_plan import plan_values
from stacks.program.addons import charts_of, releases_of
from tests.lab.prod.stub_charts import definition
from tests.lab.waiting import eventually

IMAGE = f"{PYTHON_REPOSITORY}:3.13.1"
IDLE = ["-c", "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"]
SCRATCH = "scratch"
"""Namespace and name of a StatefulSet whose pod has a volume of the class for scratch, as Prometheus's does."""
_FILE = "Pulumi.prod.yaml"
# Longer than what a roll does between two drains, so that not waiting for copies would show.
_REBUILD_S = 20


@contextmanager
def storing(lab: Lab, nodes: Sequence[str]) -> Iterator[None]:
    """These nodes store for Longhorn, there are its classes, and one scratch volume that is in use."""
    _, bodies = _declared()
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _spaces()]
    with api.connect(lab) as connection:
        core = client.CoreV1Api(connection)
        # The lab's own class has the name of the one for weights.
        own = [body for body in bodies if body["metadata"]["name"] != "longhorn"]
        api.apply(connection, *spaces, *own, definition("Volume", "longhorn.io", "v1beta2", namespaced=True))
        for node in nodes:
            core.patch_node(node, {"metadata": {"labels": {storage_nodes.LABEL: storage_nodes.VALUE}}})
        api.apply(connection, _stateful_set())
        yield
        for name in _spaces():
            core.delete_namespace(name)
        for node in nodes:
            core.patch_node(node, {"metadata": {"labels": {storage_nodes.LABEL: None}}})


@contextmanager
def emulated_longhorn(
    lab: Lab, *, settings: Mapping[str, Any] | None = None, scratch_copies: int | None = None
) -> Iterator[EmulatedLonghorn]:
    """It runs, and its volumes are whole. `settings` and `scratch_copies` are in place of the program's own."""
    values, bodies = _declared()
    classes = {body["metadata"]["name"]: dict(body["parameters"]) for body in bodies}
    if scratch_copies is not None:
        classes["longhorn-scratch"]["numberOfReplicas"] = str(scratch_copies)
    values["defaultSettings"] |= settings or {}
    with api.connect(lab) as connection:
        longhorn = EmulatedLonghorn(connection, values, classes, image=IMAGE, rebuild_s=_REBUILD_S)
        with running(longhorn):
            eventually(lambda: _is_whole(longhorn))
            yield longhorn


def _declared() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Values of Longhorn's chart, and its classes, as the program declares them for the reference site."""
    site = yaml.safe_load((CHECKOUT / _FILE).read_text())["config"]["inference-platform:site"]
    plan = plan_values(site, _FILE)
    values = dict(releases_of(plan, charts_of(plan))["longhorn"].values)
    values["defaultSettings"] = dict(values["defaultSettings"])
    return values, storage_classes("longhorn", plan.site.storage.longhorn, "v1")


def _spaces() -> tuple[str, str]:
    return namespaces.STORAGE, SCRATCH


def _is_whole(longhorn: EmulatedLonghorn) -> bool:
    volumes = longhorn.volumes.values()
    return len(volumes) > 1 and {volume.robustness for volume in volumes} == {"healthy"}


def _stateful_set() -> dict[str, Any]:
    mounts = [{"name": SCRATCH, "mountPath": "/data"}]
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "longhorn-scratch",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": SCRATCH, "namespace": SCRATCH},
        "spec": {
            "serviceName": SCRATCH,
            "selector": {"matchLabels": {"app": SCRATCH}},
            "template": {
                "metadata": {"labels": {"app": SCRATCH}},
                "spec": {
                    "tolerations": tolerations([GPU_TAINT]),
                    "nodeSelector": {storage_nodes.LABEL: storage_nodes.VALUE},
                    "containers": [{"name": SCRATCH, "image": IMAGE, "args": IDLE, "volumeMounts": mounts}],
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": SCRATCH}, "spec": claim}],
        },
    }
