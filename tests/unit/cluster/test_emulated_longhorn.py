"""The emulated Longhorn's rules, and what they make of the program's own values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from components.addons.longhorn import longhorn_values, storage_classes
from components.specs.longhorn import LonghornSpec
from floor.taints import GPU_TAINT
from lab.cluster.emulated_longhorn import Copy, Settings, Volume, holds_drain, next_share, restarts

pytestmark = pytest.mark.row("000.20")

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
VALUES = longhorn_values(LonghornSpec(), engine="v1", taints=[GPU_TAINT], selects_nodes=True, keeping="protected")
OWN = Settings.of_values(VALUES)
DEFAULT = Settings.of_values({"defaultSettings": {}})
BLACKLIST = "blacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly"
CLASSES = {body["metadata"]["name"]: body["parameters"] for body in storage_classes("longhorn", LonghornSpec(), "v1")}
POLICIES = ("block-if-contains-last-replica", "allow-if-replica-is-stopped", "always-allow", "block-for-eviction")


def with_settings(**settings: Any) -> Settings:
    return Settings.of_values({"defaultSettings": settings})


def pod(ago_s: int = 100, owner: str = "apps/v1 ReplicaSet", **metadata: Any) -> dict[str, Any]:
    """A ready one that its node took so many seconds ago."""
    version, kind = owner.split()
    began = (NOW - timedelta(seconds=ago_s)).isoformat()
    status = {"phase": "Running", "startTime": began, "conditions": [{"type": "Ready", "status": "True"}]}
    owners = [{"apiVersion": version, "kind": kind, "controller": True}]
    return {"metadata": {"ownerReferences": owners, **metadata}, "spec": {"nodeName": "n1"}, "status": status}


def volume(*copies: str, wanted: int = 2, attached: str = "", local: bool = False) -> Volume:
    made = Volume(name="pvc-1", namespace="models", claim="glm", shared=True, wanted=wanted, local=local)
    made.copies, made.node = {node: Copy() for node in copies}, attached
    made.remount_at = NOW - timedelta(seconds=20)
    return made


@pytest.mark.parametrize(
    ("settings", "owner", "deleted"),
    [
        (DEFAULT, "apps/v1 ReplicaSet", True),
        (OWN, "apps/v1 ReplicaSet", False),
        (OWN, "apps/v1 StatefulSet", True),
        (OWN, "batch/v1 Job", True),
        (with_settings(autoDeletePodWhenVolumeDetachedUnexpectedly=False), "apps/v1 StatefulSet", False),
        # The name of a kind alone, and other letters, spare nothing.
        (with_settings(**{BLACKLIST: "ReplicaSet; apps/replicaset"}), "apps/v1 ReplicaSet", True),
        (with_settings(**{BLACKLIST: "apps/DaemonSet; apps/ReplicaSet"}), "apps/v1 ReplicaSet", False),
    ],
)
def test_a_server_that_moved_restarts_who_is_not_spared(settings: Settings, owner: str, deleted: bool) -> None:
    assert restarts(pod(owner=owner), volume("n1"), pod(ago_s=10), settings, NOW) == deleted


def test_no_pod_is_restarted_before_another_server_serves() -> None:
    asked = volume("n1")
    waiting = pod(ago_s=10)
    waiting["status"]["conditions"] = []
    assert not restarts(pod(), asked, None, DEFAULT, NOW)
    assert not restarts(pod(), asked, waiting, DEFAULT, NOW)
    assert not restarts(pod(), asked, pod(ago_s=30), DEFAULT, NOW), "the server that failed"
    assert not restarts(pod(ago_s=15), asked, pod(ago_s=10), DEFAULT, NOW), "mounted after it"
    assert not restarts(pod(deletionTimestamp="x"), asked, pod(ago_s=10), DEFAULT, NOW)


def test_a_server_whose_pod_leaves_is_an_error_until_another_one_starts() -> None:
    leaving = pod(deletionTimestamp="x")
    assert next_share("running", required=True, pod=pod(), node_is_up=True) == "running"
    for gone, is_up in ((leaving, True), (None, True), (pod(), False)):
        assert next_share("running", required=True, pod=gone, node_is_up=is_up) == "error"
    assert next_share("error", required=True, pod=leaving, node_is_up=True) == "error"
    assert next_share("error", required=True, pod=None, node_is_up=True) == "starting"
    assert next_share("starting", required=True, pod=pod(), node_is_up=True) == "running"
    assert next_share("running", required=False, pod=pod(), node_is_up=True) == "stopped"


@pytest.mark.parametrize(
    ("stored", "holding"),
    [
        # Of this node's volumes: the only copy, in use elsewhere; the same, stopped; one of two, in use elsewhere.
        (volume("n1", attached="n2"), {*POLICIES} - {"always-allow"}),
        (volume("n1"), {"block-if-contains-last-replica", "block-for-eviction"}),
        (volume("n1", "n2", attached="n3"), {"block-for-eviction"}),
        (volume("n2", attached="n1"), {*POLICIES}),
        (volume("n2", attached="n2"), set()),
    ],
    ids=["last", "stopped", "two", "attached", "elsewhere"],
)
def test_which_copies_hold_a_drain(stored: Volume, holding: set[str]) -> None:
    assert {policy for policy in POLICIES if holds_drain("n1", [stored], policy, {"n2", "n3"})} == holding


def test_a_copy_that_failed_or_whose_node_is_cordoned_releases_no_other() -> None:
    rebuilding = volume("n1", "n2", attached="n3")
    rebuilding.copies["n2"].failed = True
    assert rebuilding.robustness == "degraded"
    assert holds_drain("n1", [rebuilding], OWN.drain_policy, {"n2", "n3"})
    assert not holds_drain("n2", [rebuilding], OWN.drain_policy, {"n1", "n3"})
    assert holds_drain("n1", [volume("n1", "n2", attached="n3")], OWN.drain_policy, {"n3"})


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_volume_of_each_class_lets_every_node_be_drained(name: str) -> None:
    """As it is once its pod has left: what may run elsewhere is in use there, and a local copy is stopped."""
    copies, local = int(CLASSES[name]["numberOfReplicas"]), CLASSES[name]["dataLocality"] == "strict-local"
    made = volume(*("n1", "n2")[:copies], attached="" if local else "n3")
    for node in made.copies:
        assert holds_drain(node, [made], OWN.drain_policy, {"n1", "n2", "n3"} - {node}) == ""
