"""Longhorn's manager, emulated: its servers, instance managers, budgets and reports on a real API server.

Pods of the names that Longhorn gives them do nothing. The rules are in emulated_longhorn.py. Volumes are the lab's
folders, so a pod that is not deleted reads on whatever its server does: that mounts recover is not shown here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from floor import namespaces, storage_nodes
from lab.cluster import api
from lab.cluster.emulated_longhorn import (
    REMOUNT_GRACE_S,
    Copy,
    Pod,
    Settings,
    Volume,
    holds_drain,
    is_ready,
    next_share,
    restarts,
    runs,
)

Object = dict[str, Any]

_SPACE = namespaces.STORAGE
_LOOK_EVERY_S = 0.3
_IDLE = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"
_MANAGER = "instance-manager-"


class EmulatedLonghorn:
    """One look after the other; what it did is kept for who asks."""

    def __init__(
        self,
        connection: client.ApiClient,
        values: Mapping[str, Any],
        classes: Mapping[str, Mapping[str, str]],
        *,
        image: str,
        rebuild_s: float,
    ) -> None:
        """values: of Longhorn's chart. classes: parameters of its storage classes, by name. image: runs Python."""
        self.settings = Settings.of_values(values)
        self.volumes: dict[str, Volume] = {}
        self.restarted: list[str] = []
        """Pods that were deleted for a remount."""
        self.moved: list[str] = []
        """Claims whose server failed, each time."""
        self.cordoned: dict[str, list[str]] = {}
        """Claims that were degraded when a node was first seen cordoned, by node, of the last time."""
        self.held: dict[str, str] = {}
        """Why the budget of a cordoned node stays, by node."""
        self._classes, self._image, self._rebuild_s = classes, image, rebuild_s
        self._core, self._policy = client.CoreV1Api(connection), client.PolicyV1Api(connection)
        self._connection = connection
        self._published: dict[str, Object] = {}

    def look(self) -> None:
        """Read the cluster, decide, act."""
        nodes = {entry["metadata"]["name"]: entry for entry in _items(self._core.list_node)}
        pods = _items(self._core.list_pod_for_all_namespaces)
        own = {entry["metadata"]["name"]: entry for entry in pods if entry["metadata"]["namespace"] == _SPACE}
        ready = {name for name, node in nodes.items() if is_ready(node)}
        closed = {name for name, node in nodes.items() if node["spec"].get("unschedulable")}
        store = {name for name, node in nodes.items() if _stores(node)}
        up = {name for name in store & ready if _is_up(own.get(_MANAGER + name))}
        degraded = [volume.claim for volume in self.volumes.values() if volume.robustness == "degraded"]
        self.cordoned |= dict.fromkeys(store & closed - set(self.held), degraded)
        self._find_volumes()
        for volume in self.volumes.values():
            users = [pod for pod in pods if runs(pod) and _mounts(pod, volume)]
            self._serve(volume, users, own.get(volume.server), ready)
            self._place(volume, users, up - closed)
            self._age(volume, up)
            for pod in users:
                if volume.shared and restarts(pod, volume, own.get(volume.server), self.settings, _now()):
                    name = pod["metadata"]["name"]
                    self.restarted.append(name)
                    self._core.delete_namespaced_pod(name, volume.namespace, grace_period_seconds=REMOUNT_GRACE_S)
        self._manage(store, ready, closed, own)
        self._publish()

    def _find_volumes(self) -> None:
        matching = {}
        for claim in _items(self._core.list_persistent_volume_claim_for_all_namespaces):
            meta, spec = claim["metadata"], claim["spec"]
            if claim["status"].get("phase") != "Bound" or spec.get("storageClassName") not in self._classes:
                continue
            parameters = self._classes[spec["storageClassName"]]
            matching[spec["volumeName"]] = Volume(
                name=spec["volumeName"],
                namespace=meta["namespace"],
                claim=meta["name"],
                shared="ReadWriteMany" in spec["accessModes"],
                wanted=int(parameters["numberOfReplicas"]),
                local=parameters["dataLocality"] == "strict-local",
            )
        self.volumes = {name: self.volumes.get(name, volume) for name, volume in matching.items()}

    def _place(self, volume: Volume, users: Sequence[Pod], nodes: set[str]) -> None:
        """Copies that were never placed, each on the node with the fewest; a local one on its pod's."""
        if volume.local:
            nodes = {pod["spec"]["nodeName"] for pod in users[:1]} & nodes
        while len(volume.copies) < volume.wanted and (free := nodes - set(volume.copies)):
            counts = {node: sum(node in other.copies for other in self.volumes.values()) for node in free}
            volume.copies[min(free, key=lambda node: (counts[node], node))] = Copy()

    def _serve(self, volume: Volume, users: Sequence[Pod], server: Pod | None, ready: set[str]) -> None:
        """Where it is attached: a shared one where its server runs, another one where its pod does."""
        if not volume.shared:
            volume.node = users[0]["spec"]["nodeName"] if users else ""
            return
        at = server["spec"].get("nodeName", "") if server else ""
        before = volume.share
        # A server that no node has taken yet is not on one that is down.
        volume.share = next_share(before, required=bool(users), pod=server, node_is_up=not at or at in ready)
        volume.node = at
        if volume.share == "error":
            # controller/volume_controller.go:7025-7032
            volume.remount_at = _now()
            self.moved += [volume.claim] if before != "error" else []
        if volume.share in ("error", "stopped") and server and not server["metadata"].get("deletionTimestamp"):
            self._core.delete_namespaced_pod(volume.server, _SPACE)
        elif volume.share == "starting" and server is None and volume.remount_at != _now():
            # Not in the second of the failure: to detach and attach takes longer, and times are compared by seconds.
            self._core.create_namespaced_pod(_SPACE, self._pod(volume.server, {}))

    def _age(self, volume: Volume, up: set[str]) -> None:
        """Running copies fail with their instance manager, but for the last; those that are back are rebuilt."""
        if not volume.node:
            return
        for node, copy in volume.copies.items():
            whole = {other for other, its in volume.copies.items() if not its.failed}
            if node not in up:
                copy.failed, copy.rebuilt_at = copy.failed or len(whole) > 1, None
            elif copy.failed:
                copy.rebuilt_at = copy.rebuilt_at or time.monotonic() + self._rebuild_s
                copy.failed = time.monotonic() < copy.rebuilt_at

    def _manage(self, store: set[str], ready: set[str], closed: set[str], own: Mapping[str, Pod]) -> None:
        """Instance managers and their budgets: controller/instance_manager_controller.go:1303-1395 and 735-760."""
        listed = _items(self._policy.list_namespaced_pod_disruption_budget, _SPACE)
        budgets = {entry["metadata"]["name"] for entry in listed}
        protected = {node for node in store - closed if _MANAGER + node in budgets and _is_up(own.get(_MANAGER + node))}
        self.held = {node: why for node, why in self.held.items() if node in closed}
        for node in store:
            name = _MANAGER + node
            pod = own.get(name)
            if pod is None and node in ready - closed:
                self._core.create_namespaced_pod(_SPACE, self._pod(name, {"nodeName": node}))
            elif pod is not None and not runs(pod):
                self._core.delete_namespaced_pod(name, _SPACE)
            if node in closed:
                self.held[node] = holds_drain(node, self.volumes.values(), self.settings.drain_policy, protected)
                if name in budgets and _is_up(pod) and not self.held[node]:
                    self._policy.delete_namespaced_pod_disruption_budget(name, _SPACE)
            elif _is_up(pod) and name not in budgets:
                body = client.V1PodDisruptionBudget.model_validate(_budget(name))
                self._policy.create_namespaced_pod_disruption_budget(_SPACE, body)

    def _publish(self) -> None:
        for volume in self.volumes.values():
            bound = {"namespace": volume.namespace, "pvcName": volume.claim}
            body = {
                "apiVersion": "longhorn.io/v1beta2",
                "kind": "Volume",
                "metadata": {"name": volume.name, "namespace": _SPACE},
                "status": {"robustness": volume.robustness, "kubernetesStatus": bound},
            }
            if self._published.get(volume.name) != body:
                api.apply(self._connection, body)
                api.apply(self._connection, body, subresource="status")
                self._published[volume.name] = body

    def _pod(self, name: str, spec: Object) -> Any:
        """One that does nothing, where Longhorn's own pods may be."""
        note = {"inference-lab/emulation": "does nothing: no engine, no NFS server"}
        body = {
            "metadata": {"name": name, "namespace": _SPACE, "labels": {"app": name}, "annotations": note},
            "spec": {
                "tolerations": list(self.settings.tolerations),
                "nodeSelector": {storage_nodes.LABEL: storage_nodes.VALUE},
                "containers": [{"name": "idle", "image": self._image, "args": ["-c", _IDLE]}],
                "terminationGracePeriodSeconds": 5,
                "restartPolicy": "Never",
                **spec,
            },
        }
        return client.V1Pod.model_validate(body)


@contextmanager
def running(longhorn: EmulatedLonghorn) -> Iterator[EmulatedLonghorn]:
    """It looks until the block ends; an API server that is away is asked again."""
    ending = threading.Event()

    def keep_looking() -> None:
        while not ending.wait(_LOOK_EVERY_S):
            with suppress(client.ApiException, HTTPError, OSError):
                longhorn.look()

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield longhorn
    finally:
        ending.set()
        thread.join()


def _items(listing: Callable[..., Any], *arguments: str) -> list[Object]:
    answer = listing(*arguments, _preload_content=False, _request_timeout=10)
    items: list[Object] = json.loads(answer.data)["items"]
    return items


def _budget(name: str) -> Object:
    """controller/instance_manager_controller.go:1642-1655"""
    return {
        "metadata": {"name": name, "namespace": _SPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
    }


def _stores(node: Object) -> bool:
    return bool((node["metadata"].get("labels") or {}).get(storage_nodes.LABEL) == storage_nodes.VALUE)


def _is_up(pod: Pod | None) -> bool:
    return pod is not None and is_ready(pod) and not pod["metadata"].get("deletionTimestamp")


def _mounts(pod: Pod, volume: Volume) -> bool:
    claims = {(entry.get("persistentVolumeClaim") or {}).get("claimName") for entry in pod["spec"].get("volumes") or ()}
    return pod["metadata"]["namespace"] == volume.namespace and volume.claim in claims


def _now() -> datetime:
    """To the second, as Longhorn and Kubernetes write it."""
    return datetime.now(UTC).replace(microsecond=0)
