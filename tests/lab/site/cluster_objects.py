"""Everything that a cluster holds, and what of it two runs of a stack must have in common."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import Any

from lab import session
from lab.paths import Lab

Object = dict[str, Any]

# They come and go, and tell of the past.
_PASSING = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses")
# What the API server or a controller chooses for every object.
_CHOSEN_METADATA = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_CHOSEN_ANNOTATIONS = ("deployment.kubernetes.io/revision",)
# Left by the one who moved the pods, as a drain does.
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_CHOSEN_SPEC = ("clusterIP", "clusterIPs", "volumeName")
_OF_JOB = ("controller-uid", "job-name")
FIELD_MANAGER = "pulumi.com/patchFieldManager"


def kubectl(lab: Lab, *arguments: str) -> str:
    """What kubectl prints; an assertion with its error if it fails."""
    done = subprocess.run(
        ["kubectl", *arguments], env=session.environment(lab), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def inventory(lab: Lab) -> dict[str, Object]:
    """Every object of every kind that can be listed, by `Kind namespace/name`."""
    kinds = set(kubectl(lab, "api-resources", "--verbs=list", "--output=name").split()) - set(_PASSING)
    listed = kubectl(lab, "get", ",".join(sorted(kinds)), "--all-namespaces", "--ignore-not-found", "--output=json")
    return {key(item): item for item in json.loads(listed)["items"]}


def key(item: Object) -> str:
    meta = item["metadata"]
    return f"{item['kind']} {meta.get('namespace', '-')}/{meta['name']}"


def declared(objects: dict[str, Object]) -> dict[str, Object]:
    """Those that the stack applied, without what is chosen for each object. Values of Secrets are left out."""
    # A ReplicaSet repeats its Deployment's annotations.
    return {
        name: _comparable(item)
        for name, item in objects.items()
        if FIELD_MANAGER in _annotations(item) and not item["metadata"].get("ownerReferences")
    }


def _annotations(item: Object) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def _comparable(item: Object) -> Object:
    kept = copy.deepcopy({name: part for name, part in item.items() if name != "status"})
    for name in _CHOSEN_METADATA:
        kept["metadata"].pop(name, None)
    for name in _CHOSEN_ANNOTATIONS:
        kept["metadata"]["annotations"].pop(name, None)
    for name in _CHOSEN_SPEC:
        kept.get("spec", {}).pop(name, None)
    pods = kept.get("spec", {}).get("template", {}).get("metadata", {})
    pods.get("annotations", {}).pop(_RESTARTED, None)
    if kept["kind"] == "Job":
        # The Job's uid, by which its controller finds its pods.
        kept["spec"].pop("selector", None)
        pods["labels"] = {name: value for name, value in pods["labels"].items() if not name.endswith(_OF_JOB)}
    if kept["kind"] == "Secret":
        kept["data"] = sorted(kept["data"])
    return kept
