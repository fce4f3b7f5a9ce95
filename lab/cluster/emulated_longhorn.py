"""What Longhorn decides about servers of shared volumes and about drains, emulated: no engine, no data, no NFS.

Each rule was read from longhorn-manager v1.12.1, and names its lines there. Left out: engine v2, migration, salvaging,
lost disks, eviction, copies made elsewhere once a node was away for long, pods deleted on nodes that are down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

# controller/kubernetes_pod_controller.go:38 and 710
_REMOUNT_DELAY = timedelta(seconds=5)
REMOUNT_GRACE_S = 30

Share = Literal["stopped", "starting", "running", "error"]
Pod = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Those that the rules read."""

    restarts_pods: bool
    spared: frozenset[str]
    """Controllers of pods that are not restarted, such as apps/ReplicaSet."""
    drain_policy: str
    tolerations: tuple[dict[str, str], ...]
    """Of Longhorn's own pods."""

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Settings:
        """As the values of Longhorn's chart set them; what they leave out has Longhorn's default (types/setting.go)."""
        given = values["defaultSettings"]

        def entries(key: str) -> list[str]:
            """util/util.go:359 SplitStringToMap"""
            return [entry.strip() for entry in given.get(key, "").split(";") if entry.strip()]

        taints = [entry.rpartition(":") for entry in entries("taintToleration")]
        return cls(
            restarts_pods=given.get("autoDeletePodWhenVolumeDetachedUnexpectedly", True),
            spared=frozenset(entries("blacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly")),
            drain_policy=given.get("nodeDrainPolicy", "block-if-contains-last-replica"),
            tolerations=tuple({"key": key, "operator": "Exists", "effect": effect} for key, _, effect in taints),
        )


@dataclass(kw_only=True)
class Copy:
    """Of a volume, on one node."""

    failed: bool = False
    rebuilt_at: float | None = None
    """When a failed one that is being rebuilt will be whole."""


@dataclass(kw_only=True)
class Volume:
    """One claim's."""

    name: str
    namespace: str
    claim: str
    shared: bool
    wanted: int
    local: bool
    copies: dict[str, Copy] = field(default_factory=dict)
    node: str = ""
    """Where it is attached; its copies run as long as it is."""
    share: Share = "stopped"
    remount_at: datetime | None = None

    @property
    def server(self) -> str:
        return f"share-manager-{self.name}"

    @property
    def robustness(self) -> str:
        """controller/volume_controller.go:940-985, and 809 for one that is not attached."""
        whole = sum(not copy.failed for copy in self.copies.values())
        if not self.node:
            return "unknown"
        return "healthy" if whole >= self.wanted else "degraded" if whole else "faulted"

    def has_another(self, node: str, protected: Set[str]) -> bool:
        """datastore/longhorn.go:2603-2641: a healthy copy elsewhere whose node is not cordoned and has a budget."""
        return any(other in protected and other != node and not copy.failed for other, copy in self.copies.items())


def next_share(now: Share, *, required: bool, pod: Pod | None, node_is_up: bool) -> Share:
    """controller/share_manager_controller.go:646-738 (volume) and 863-1003 (pod), in one look."""
    if not required:
        return "stopped"
    if now in ("stopped", "error"):
        # 953-972: one that still ends is an error again, which asks for a remount again.
        return "starting" if pod is None else "error"
    if pod is None:
        return "starting" if now == "starting" else "error"
    if pod["metadata"].get("deletionTimestamp") or not node_is_up or pod["status"].get("phase") in _ENDED:
        return "error"
    return "running" if is_ready(pod) else now


def restarts(pod: Pod, volume: Volume, server: Pod | None, settings: Settings, now: datetime) -> bool:
    """Whether the pod, which mounts the volume, is deleted: controller/kubernetes_pod_controller.go:618-725."""
    owner = next((item for item in pod["metadata"].get("ownerReferences") or () if item.get("controller")), None)
    if not settings.restarts_pods or owner is None or pod["metadata"].get("deletionTimestamp"):
        return False
    # 338-364: of another group's version, such as v1, none is spared.
    group, slash, _ = owner["apiVersion"].partition("/")
    if slash and f"{group}/{owner['kind']}" in settings.spared:
        return False
    asked, began = volume.remount_at, started(pod)
    if asked is None or began is None or began >= asked:
        return False
    # 670-698: only once another server of the volume serves.
    serves_since = started(server) if server is not None and is_ready(server) else None
    return serves_since is not None and serves_since > asked and now > asked + _REMOUNT_DELAY


def holds_drain(node: str, volumes: Iterable[Volume], policy: str, protected: Set[str]) -> str:
    """Why the budget of a cordoned node's instance manager stays; empty where it is deleted.

    controller/instance_manager_controller.go:1504-1594.
    """
    volumes = list(volumes)
    if attached := [volume.claim for volume in volumes if volume.node == node]:
        return f"{', '.join(attached)} still attached"
    if policy == "always-allow":
        return ""
    here = [volume for volume in volumes if node in volume.copies]
    if policy == "block-for-eviction" and here:
        return f"copies of {', '.join(volume.claim for volume in here)} to be evicted"
    for volume in here:
        runs = bool(volume.node) and not volume.copies[node].failed
        if policy == "allow-if-replica-is-stopped" and not runs:
            continue
        if not volume.has_another(node, protected):
            return f"the copy of {volume.claim} has no budget on another node"
    return ""


def is_ready(pod: Pod) -> bool:
    """Whether the pod, or a node, is."""
    conditions = pod["status"].get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def runs(pod: Pod) -> bool:
    """Whether it is on a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in _ENDED


def started(pod: Pod) -> datetime | None:
    """When its node took it."""
    text = pod["status"].get("startTime")
    return datetime.fromisoformat(text) if text else None


_ENDED = ("Succeeded", "Failed")
