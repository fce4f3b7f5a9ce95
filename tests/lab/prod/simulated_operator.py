"""A simulated operator: runs in a pod of a stub chart, and plays what the operator of that name does to objects.

It needs Python alone. A finalizer holds each object that it reports on until it has let go, so an operator that is
uninstalled before its objects leaves them for good.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Object = dict[str, Any]

HOLD = "simulated.lab.example/held"
# Longhorn's own.
LONGHORN_HOLD = "longhorn.io"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOK_EVERY_S = 0.5
_LONGHORN = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system"
_FLAG = "deleting-confirmation-flag"


class RefusedError(Exception):
    """The API server's answer, by its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def call(method: str, path: str, body: Object | None = None) -> Object:
    """One call with the pod's own account; a body of PATCH is a merge patch. Raises RefusedError."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(
        f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text()}", "Content-Type": kind},
    )
    trust = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:  # noqa: S310
            result: Object = json.load(answer)
            return result
    except urllib.error.HTTPError as error:
        raise RefusedError(error.code, error.read().decode(errors="replace")) from None


def looked_up(path: str) -> Object | None:
    """The object, if it is there."""
    try:
        return call("GET", path)
    except RefusedError as refused:
        if refused.status == 404:
            return None
        raise


def ensure(collection: str, body: Object) -> Object:
    """The object of this name as it is, made where it is missing."""
    known = looked_up(f"{collection}/{body['metadata']['name']}")
    return known or call("POST", collection, body)


def held(collection: str, finalizer: str = HOLD) -> Iterator[tuple[str, Object]]:
    """Path and object of each of a kind, with the finalizer; one that is to go is let go, and not given."""
    for item in (looked_up(collection) or {"items": []})["items"]:
        path = f"{collection}/{item['metadata']['name']}"
        finalizers = item["metadata"].get("finalizers") or []
        if "deletionTimestamp" in item["metadata"]:
            release(path, item, finalizer)
            continue
        if finalizer not in finalizers:
            call("PATCH", path, {"metadata": {"finalizers": [*finalizers, finalizer]}})
        yield path, item


def release(path: str, item: Object, finalizer: str) -> None:
    """Take the finalizer away."""
    left = [name for name in item["metadata"].get("finalizers") or [] if name != finalizer]
    call("PATCH", path, {"metadata": {"finalizers": left}})


def report(path: str, item: Object, status: Object) -> None:
    """Write the status, where it is another one."""
    if {**(item.get("status") or {}), **status} != item.get("status"):
        call("PATCH", f"{path}/status", {"status": status})


def runs_on_each(owner: Object, name: str, tolerations: list[Object], affinity: Object) -> bool:
    """Whether a pod of the owner runs on each node that it is for; the owner's DaemonSet is made."""
    labels = {"app": name, "simulated.lab.example/by": owner["kind"]}
    container = {
        "name": "simulated",
        "image": "docker.io/library/python:3.13.1",
        "args": ["-c", "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "ownerReferences": [{**reference, "controller": True}]},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"tolerations": tolerations, "affinity": affinity, "containers": [container]},
            },
        },
    }
    made = ensure(f"/apis/apps/v1/namespaces/{os.environ['NAMESPACE']}/daemonsets", body)
    status = made.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    return bool(wanted) and status.get("numberReady") == wanted


def on_gpu_nodes() -> Object:
    """The affinity of NVIDIA's DaemonSets."""
    term = {"key": "feature.node.kubernetes.io/pci-10de.present", "operator": "In", "values": ["true"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def gpus() -> None:
    """NVIDIA's GPU operator: the class of GPU pods, and a validator on each node with GPUs before it is ready."""
    for path, policy in held("/apis/nvidia.com/v1/clusterpolicies"):
        meta, spec = policy["metadata"], policy["spec"]
        name = spec["operator"]["runtimeClass"]
        owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": meta["name"], "uid": meta["uid"]}
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}
        ensure(
            "/apis/node.k8s.io/v1/runtimeclasses", {**runtime, "metadata": {"name": name, "ownerReferences": [owner]}}
        )
        policy |= {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
        tolerations = spec["daemonsets"]["tolerations"]
        validated = runs_on_each(policy, "nvidia-operator-validator", tolerations, on_gpu_nodes())
        report(path, policy, {"state": "ready" if validated else "notReady"})


def rdma() -> None:
    """NVIDIA's network operator: its device plugin on the nodes that the policy chooses."""
    for path, policy in held("/apis/mellanox.com/v1alpha1/nicclusterpolicies"):
        policy |= {"apiVersion": "mellanox.com/v1alpha1", "kind": "NicClusterPolicy"}
        spec = policy["spec"]
        affinity = {"nodeAffinity": spec["nodeAffinity"]}
        runs = runs_on_each(policy, "rdma-shared-dp-ds", spec["tolerations"], affinity)
        report(path, policy, {"state": "ready" if runs else "notReady"})


def cilium() -> None:
    """Cilium's operator: a pool conflicts with no other."""
    pools = "/apis/cilium.io/v2/ciliumloadbalancerippools"
    for pool in (looked_up(pools) or {"items": []})["items"]:
        condition = {
            "type": "cilium.io/PoolConflict",
            "status": "False",
            "reason": "noconflict",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        report(f"{pools}/{pool['metadata']['name']}", pool, {"conditions": [condition]})


def longhorn_manager() -> None:
    """Longhorn's manager on a node: its settings, and its view of the node with the disks of the annotation."""
    configured = call("GET", "/api/v1/namespaces/longhorn-system/configmaps/longhorn-default-setting")
    settings = json.loads(configured["data"]["default-setting.json"])
    flag = json.dumps(settings["deletingConfirmationFlag"])
    meta = {"name": _FLAG, "namespace": "longhorn-system"}
    body = {"apiVersion": "longhorn.io/v1beta2", "kind": "Setting", "metadata": meta, "value": flag}
    if ensure(f"{_LONGHORN}/settings", body)["value"] != flag:
        call("PATCH", f"{_LONGHORN}/settings/{_FLAG}", {"value": flag})
    name = os.environ["NODE_NAME"]
    node = call("GET", f"/api/v1/nodes/{name}")["metadata"]
    if node["labels"].get("node.longhorn.io/create-default-disk") != "config":
        return
    disks = {disk["name"]: disk for disk in json.loads(node["annotations"]["node.longhorn.io/default-disks-config"])}
    seen = {
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Node",
        "metadata": {"name": name, "namespace": "longhorn-system", "finalizers": [LONGHORN_HOLD]},
        "spec": {"name": name, "allowScheduling": True, "disks": disks},
    }
    own = ensure(f"{_LONGHORN}/nodes", seen)
    schedulable = [{"type": "Schedulable", "status": "True"}]
    report(
        f"{_LONGHORN}/nodes/{name}",
        own,
        {
            "conditions": [{"type": "Ready", "status": "True"}, *schedulable],
            "diskStatus": {disk: {"conditions": schedulable} for disk in disks},
        },
    )


def longhorn_uninstall() -> None:
    """Longhorn's uninstaller: refuses without the flag; else ends the managers, then lets go of all objects."""
    flag = looked_up(f"{_LONGHORN}/settings/{_FLAG}")
    if flag is None or flag["value"] != "true":
        sys.exit(f"cannot uninstall Longhorn because {_FLAG} is set to `false`")
    managers = "/apis/apps/v1/namespaces/longhorn-system/daemonsets/longhorn-manager"
    if looked_up(managers):
        call("DELETE", managers, {"propagationPolicy": "Foreground"})
        while looked_up(managers):
            time.sleep(_LOOK_EVERY_S)
    for kind in ("nodes", "settings"):
        for item in call("GET", f"{_LONGHORN}/{kind}")["items"]:
            path = f"{_LONGHORN}/{kind}/{item['metadata']['name']}"
            release(path, item, LONGHORN_HOLD)
            call("DELETE", path)


def delete_definitions(*names: str) -> None:
    """The hook of NVIDIA's chart: definitions that no template has."""
    collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for name in names:
        if looked_up(f"{collection}/{name}"):
            call("DELETE", f"{collection}/{name}")
    while any(looked_up(f"{collection}/{name}") for name in names):
        time.sleep(_LOOK_EVERY_S)


LOOPS: dict[str, Callable[[], None]] = {
    "gpu-operator": gpus,
    "network-operator": rdma,
    "cilium-operator": cilium,
    "longhorn-manager": longhorn_manager,
}
ONCE: dict[str, Callable[..., None]] = {
    "longhorn-uninstall": longhorn_uninstall,
    "delete-definitions": delete_definitions,
}


def main(part: str, *arguments: str) -> None:
    """Play the part until SIGTERM, or to its end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    if part in ONCE:
        ONCE[part](*arguments)
        return
    while True:
        try:
            LOOPS[part]()
        except (RefusedError, OSError, KeyError) as error:
            # What it needs is not there yet, or changed meanwhile: it looks again.
            sys.stderr.write(f"simulated {part}: {error!r}\n")
            sys.stderr.flush()
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
