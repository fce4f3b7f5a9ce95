"""Cilium's objects on a real API server: made by Talos, taken over by the program, changed by it, and left again.

Talos is kubectl as its field manager, and Cilium is a few objects in the form of its chart: no agent runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lab.paths import CHECKOUT
from tests.lab.plugin_kubernetes.conftest import Plane, Site

pytestmark = pytest.mark.row("C.01", "opening 7")

SPACE = "kube-system"
PROGRAM = f"""
import json, pathlib, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from components.machines.pod_network import PodNetwork, PodNetworkArgs

here = pathlib.Path(__file__).parent
kubeconfig = pulumi.Output.secret((here / "kubeconfig").read_text())
provider = k8s.Provider(
    "cluster",
    kubeconfig=kubeconfig,
    enable_server_side_apply=True,
    upsert_existing_objects=True,
    enable_patch_force=True,
    enable_config_map_mutable=True,
)
objects = json.loads((here / "objects.json").read_text())
if objects:
    args = PodNetworkArgs(objects=objects, kubeconfig=kubeconfig, nodes=1, operators_fit=True, needs=[])
    PodNetwork("pod-network", args, pulumi.ResourceOptions(providers=[provider]))
"""


def an_object(kind: str, name: str, api: str = "v1", **content: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, **content}


def workload(kind: str, name: str, version: str) -> dict[str, Any]:
    labels = {"k8s-app": name}
    pod = {"serviceAccountName": "cilium", "containers": [{"name": "c", "image": f"cilium.example/{name}:{version}"}]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return an_object(kind, name, "apps/v1", spec=spec)


def chart(version: str, settings: dict[str, str], *daemon_sets: str) -> list[dict[str, Any]]:
    return [
        *(workload("DaemonSet", name, version) for name in daemon_sets),
        workload("Deployment", "cilium-operator", version),
        an_object("ConfigMap", "cilium-config", data=settings),
        an_object("ServiceAccount", "cilium"),
    ]


EARLIER = chart("v1", {"kept": "a", "dropped": "b"}, "cilium", "cilium-envoy")
MADE = {"apiVersion": "v1", "kind": "List", "items": EARLIER}
NEWER = chart("v2", {"kept": "a", "new": "c"}, "cilium")


@pytest.fixture
def by_talos(plane: Plane) -> Iterator[Plane]:
    """A cluster on which Talos has made the earlier chart's objects."""
    plane.kubectl("apply", "--server-side", "--field-manager=talos", "-f", "-", given=MADE)
    for kind, name in (("daemonset", "cilium"), ("daemonset", "cilium-envoy"), ("deployment", "cilium-operator")):
        plane.kubectl("rollout", "status", f"{kind}/{name}", "-n", SPACE, "--timeout=60s")
    yield plane
    plane.kubectl("delete", "-f", "-", "--ignore-not-found", given=MADE)


def declare(site: Site, objects: list[dict[str, Any]]) -> str:
    (site.folder / "objects.json").write_text(json.dumps(objects))
    return site.up()


def shape(plane: Plane) -> dict[str, Any]:
    """What a restart, or an object that was made again, would change."""
    agents = plane.get("daemonset", "cilium", SPACE)["metadata"]
    return {"uid": agents["uid"], "generation": agents["generation"], "pods": sorted(plane.names("pods", SPACE))}


@pytest.mark.exhaustive
def test_cilium_is_taken_over_as_it_is_and_a_newer_chart_leaves_nothing_behind(site: Site, by_talos: Plane) -> None:
    plane = by_talos
    site.write(PROGRAM)
    (site.folder / "kubeconfig").write_text(plane.kubeconfig.read_text())
    for name in (".venv", "talos", "floor"):
        (site.folder / name).symlink_to(CHECKOUT / name)

    made = shape(plane)
    declare(site, EARLIER)
    site.unchanged()
    assert shape(plane) == made, "nothing restarts"
    managers = {
        entry["manager"] for entry in plane.get("configmap", "cilium-config", SPACE)["metadata"]["managedFields"]
    }
    assert managers == {"talos"}

    declare(site, NEWER)
    assert plane.get("configmap", "cilium-config", SPACE)["data"] == {"kept": "a", "new": "c"}
    agents = plane.get("daemonset", "cilium", SPACE)
    assert agents["metadata"]["uid"] == made["uid"]
    assert agents["status"]["updatedNumberScheduled"] == agents["status"]["desiredNumberScheduled"] > 0
    assert plane.names("daemonset", SPACE) == ["daemonset.apps/cilium"]
    site.unchanged()

    declare(site, [])
    assert plane.get("daemonset", "cilium", SPACE)["metadata"]["uid"] == made["uid"], "the key went, and Cilium stays"
    declare(site, NEWER)
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert plane.get("daemonset", "cilium", SPACE)["metadata"]["uid"] == made["uid"], "it ends with the machines"
