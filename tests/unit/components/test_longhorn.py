"""Longhorn: values, classes for each purpose, and that nothing uninstalls it by accident."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.addon import AddonSite
from components.addons.charts import Chart
from components.addons.installed import InstalledAddon
from components.addons.longhorn import LONGHORN, longhorn_values, storage_classes, stored
from components.specs.longhorn import DataEngine, LonghornSpec
from floor.problems import SiteError
from floor.stateful import Keeping, holder
from floor.taints import GPU_TAINT
from lab.plugins.kubernetes.awaiting.expressions import parse
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import plan_values
from stacks.program.addons import charts_of, check_values, releases_of
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01", "000.20", "000.21", "000.22")

RELEASE = "kubernetes:helm.sh/v3:Release"


def values_of(spec: LonghornSpec | None = None, engine: DataEngine = "v1") -> dict[str, Any]:
    asked = spec or LonghornSpec()
    return longhorn_values(asked, engine=engine, taints=[GPU_TAINT], selects_nodes=True, keeping="protected")


DISKS = ("longhorn-0", "longhorn-1")


def requests(keeping: Keeping = "protected", nodes: tuple[str, ...] = ("hgx-1",)) -> dict[str, Any]:
    """What the engine gets."""
    recorder = Recorder()

    async def run() -> None:
        about = AddonSite(
            section=LonghornSpec(),
            charts={"longhorn": Chart(chart="longhorn", version="1.0.0", repository="https://charts.site.example")},
            gpu_taints=[GPU_TAINT],
            disks=dict.fromkeys(nodes, DISKS),
            keeping=keeping,
        )
        InstalledAddon(LONGHORN, about)
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)
    return recorder.requests


def test_nothing_of_a_site_is_reported_to_the_publisher() -> None:
    settings = values_of()["defaultSettings"]
    assert (settings["upgradeChecker"], settings["allowCollectingLonghornUsageMetrics"]) == (False, False)


def test_disks_are_those_of_the_machine_configs_alone() -> None:
    """On the nodes that have them, whose host has the programs that Longhorn runs."""
    made = values_of()
    assert made["defaultSettings"]["createDefaultDiskLabeledNodes"] is True
    label = {"node.longhorn.io/create-default-disk": "config"}
    assert made["longhornManager"]["nodeSelector"] == made["longhornDriver"]["nodeSelector"] == label
    assert made["defaultSettings"]["systemManagedComponentsNodeSelector"] == ":".join(*label.items())
    assert made["defaultSettings"]["taintToleration"] == "nvidia.com/gpu:NoSchedule"
    free = longhorn_values(LonghornSpec(), engine="v1", taints=[], selects_nodes=False, keeping="protected")
    assert "nodeSelector" not in free["longhornManager"]
    assert "systemManagedComponentsNodeSelector" not in free["defaultSettings"]


def test_a_shared_volume_moves_at_once_when_its_server_is_lost() -> None:
    assert values_of()["defaultSettings"]["rwxVolumeFastFailover"] is True


def test_a_server_that_moves_deletes_no_pod_of_a_deployment() -> None:
    """Longhorn compares group and kind of a pod's owner, by case; what StatefulSets own it still restarts."""
    settings = values_of()["defaultSettings"]
    assert settings["blacklistForAutoDeletePodWhenVolumeDetachedUnexpectedly"] == "apps/ReplicaSet"
    assert settings.get("autoDeletePodWhenVolumeDetachedUnexpectedly", True)


@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_only_the_engine_of_the_disks_runs(engine: DataEngine) -> None:
    settings = values_of(engine=engine)["defaultSettings"]
    assert (settings["v1DataEngine"], settings["v2DataEngine"]) == (engine == "v1", engine == "v2")
    classes = storage_classes("longhorn", LonghornSpec(), engine)
    assert {body["parameters"]["dataEngine"] for body in classes} == {engine}


def test_each_purpose_has_a_class() -> None:
    made = storage_classes("fast", LonghornSpec(weight_replicas=3), "v1")
    classes = {body["metadata"]["name"]: body for body in made}
    weights, databases, scratch = (classes[name]["parameters"] for name in ("fast", "fast-databases", "fast-scratch"))
    assert (weights["numberOfReplicas"], weights["dataLocality"]) == ("3", "disabled")
    assert (databases["numberOfReplicas"], databases["dataLocality"]) == ("1", "strict-local")
    assert classes["fast-databases"]["volumeBindingMode"] == "WaitForFirstConsumer", "its copy is where its pod is"
    assert classes["fast-databases"]["reclaimPolicy"] == "Retain"
    assert scratch["numberOfReplicas"] == "2", "a node whose copy is the only one that runs cannot be drained"
    assert all(isinstance(value, str) for body in classes.values() for value in body["parameters"].values())


def test_a_site_of_one_copy_has_one_of_scratch_volumes_too() -> None:
    """It may have a single node, on which no second copy finds a disk."""
    (*_, scratch) = storage_classes("longhorn", LonghornSpec(weight_replicas=1), "v1")
    assert scratch["parameters"]["numberOfReplicas"] == "1"


@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_shared_volumes_are_mounted_by_longhorns_own_options(engine: DataEngine) -> None:
    """One option of ours would replace all of its own, and `hard` would hang a node whose server is gone."""
    for body in storage_classes("longhorn", LonghornSpec(), engine):
        assert "nfsOptions" not in body["parameters"]
        assert "mountOptions" not in body


def test_no_class_asks_engine_v2_for_what_it_cannot_do() -> None:
    for body in storage_classes("longhorn", LonghornSpec(), "v2"):
        assert body["parameters"]["dataLocality"] != "strict-local"


@pytest.mark.parametrize(("keeping", "kept"), [("protected", True), ("disposable", False)])
def test_nothing_uninstalls_the_storage_of_a_site_that_keeps_its_volumes(keeping: Keeping, kept: bool) -> None:
    """Neither the engine nor Longhorn's own hook, which asks for its flag."""
    release = requests(keeping)["storage-longhorn"]
    assert release.protect == kept
    settings = deserialize_properties(release.object)["values"]["defaultSettings"]
    assert settings["deletingConfirmationFlag"] != kept
    sort = holder(RELEASE, "storage-longhorn")
    assert sort is not None
    assert "storage.volumes" in sort.permission


def test_longhorn_is_ready_when_each_node_with_disks_can_store() -> None:
    made = requests(nodes=("hgx-1", "hgx-2"))
    for node in ("hgx-1", "hgx-2"):
        mark = made[f"storage-stored-{node}"]
        assert mark.type == "kubernetes:longhorn.io/v1beta2:NodePatch"
        body = deserialize_properties(mark.object)
        waits = json.loads(body["metadata"]["annotations"]["pulumi.com/waitFor"])
        assert waits[0] == "condition=Ready"
        assert waits[1:] == [
            f"jsonpath={{.status.diskStatus['{disk}'].conditions[?(@.type=='Schedulable')].status}}=True"
            for disk in DISKS
        ]
        named = {urn.rpartition("::")[2] for urn in mark.dependencies}
        assert {"storage-longhorn", "storage-managed"} <= named
    managers = deserialize_properties(made["storage-managed"].object)
    assert managers["metadata"]["name"] == "longhorn-manager"
    assert managers["metadata"]["annotations"]["pulumi.com/waitFor"] == "jsonpath={.status.numberReady}=2"
    assert not [name for name in requests(nodes=()) if name.startswith(("storage-managed", "storage-stored"))]


def test_what_a_disk_must_be_is_read_as_the_provider_reads_it() -> None:
    """A node without its disks is not ready; Longhorn calls it Schedulable all the same."""
    waits = json.loads(stored("hgx-1", ["longhorn-0"], "x")["metadata"]["annotations"]["pulumi.com/waitFor"])
    checks = parse(json.dumps(waits))
    ready = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]}
    disk = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]}
    full = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "False"}]}

    def is_ready(disks: dict[str, Any]) -> bool:
        node = {"metadata": {"name": "hgx-1"}, "status": {**ready, "diskStatus": disks}}
        return all(check(node).ready for check in checks)

    assert is_ready({"longhorn-0": disk})
    assert not is_ready({})
    assert not is_ready({"longhorn-0": full})


def test_disks_reserve_what_the_site_sets_and_no_share_besides() -> None:
    """Longhorn's default takes 30 % of a disk that reserves nothing, which the proof does not count."""
    assert values_of()["defaultSettings"]["storageReservedPercentageForDefaultDisk"] == 0


def test_classes_leave_before_what_serves_them() -> None:
    made = requests()
    for name in ("longhorn", "longhorn-databases", "longhorn-scratch"):
        assert {urn.rpartition("::")[2] for urn in made[f"storage-class-{name}"].dependencies} == {"storage-longhorn"}


def test_mounts_and_webhooks_reach_longhorn_and_pods_reach_no_more() -> None:
    policy = deserialize_properties(requests()["storage-network-policy-longhorn"].object)["spec"]
    assert policy["podSelector"] == {"matchLabels": {}}
    within, outside = policy["ingress"]
    assert within == {"from": [{"podSelector": {"matchLabels": {}}}]}
    assert sorted(port["port"] for port in outside["ports"]) == [2049, 9501, 9502, 9503]


def test_backups_go_where_the_site_says_with_a_secret_that_it_makes() -> None:
    assert values_of()["defaultBackupStore"] == {}
    store = values_of(LonghornSpec(backup_target="s3://b@r/p", backup_credential_secret="named"))["defaultBackupStore"]
    assert store == {"backupTarget": "s3://b@r/p", "backupTargetCredentialSecret": "named"}


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"backup_target": "s3://key:secret@region/"}, "backup_target is no address that Longhorn reads"),
        ({"backup_target": "/mnt/backups"}, "backup_target is no address that Longhorn reads"),
        ({"backup_credential_secret": "backup"}, "backup_credential_secret is set without a backup_target"),
        ({"weight_replicas": 0}, "weight_replicas"),
    ],
)
def test_a_backup_that_cannot_work_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(SiteError, match=what):
        plan_values(changed(prod(), {"storage.longhorn": settings}), "site.yaml")


@pytest.mark.parametrize("change", [{}, {"storage.volumes": "disposable"}, {"storage.longhorn": {}}])
def test_every_value_is_one_that_the_chart_documents(change: dict[str, Any]) -> None:
    plan = plan_values(changed(prod(), change), "site.yaml")
    charts = charts_of(plan)
    check_values(plan, charts)
    assert "longhorn" in releases_of(plan, charts)
    assert "longhorn" in installed_charts(plan.site)
